/* A vocabulary made of the input's bytes, and a text: refused with one line, or every id is in
 * range and the text comes back the same by pieces and by stream. The first byte decides: a GGUF
 * file as it is (few inputs are one), or a vocabulary built from the bytes, mostly right, so that
 * the text is reached. */

/* FUZZ: coordinator/model/tokenizer.c coordinator/model/vocab_load.c coordinator/model/vocab.c
 * FUZZ: coordinator/model/alphabet.c coordinator/model/bpe.c coordinator/model/spm.c
 * FUZZ: coordinator/model/detok.c coordinator/model/merge.c coordinator/model/special.c
 * FUZZ: coordinator/model/split.c coordinator/model/unicode_table.c coordinator/model/utf8.c
 * FUZZ: coordinator/model/gguf.c coordinator/model/gguf_front.c coordinator/model/gguf_split.c
 * FUZZ: coordinator/pack/pack.c -lxxhash
 * FUZZ: kernels/type/type.c shm/err.c
 */
#include "coordinator/model/tokenizer.h"

#include "coordinator/model/gguf_build.h"
#include "coordinator/model/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define MUST(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond))                                                                               \
            abort();                                                                               \
    } while (0)

struct in {
    const uint8_t *p;
    size_t n;
};

static unsigned take(struct in *in)
{
    if (!in->n)
        return 0;
    in->n--;
    return *in->p++;
}

/* Up to `most` bytes, as a GGUF string. */
static void take_str(struct in *in, struct build *b, size_t most)
{
    size_t n = take(in) % (most + 1);

    if (n > in->n)
        n = in->n;
    build_int(b, n, 8);
    build_bytes(b, in->p, n);
    in->p += n;
    in->n -= n;
}

static const char *const rules[] = {"gpt-2",       "qwen2",        "qwen35",    "llama-bpe",
                                    "glm4",        "gpt-4o",       "olmo",      "chatglm-bpe",
                                    "deepseek-v3", "deepseek-llm", "llama-bpe", "none"};

static void build_vocab(struct in *in, struct build *b)
{
    static const char *const ids[] = {"bos", "eos", "eot", "eom", "unknown", "padding"};
    static const char *const flags[] = {"bos_token", "eos_token", "space_prefix"};
    static const float scores[] = {0, -1, -2, 3, 1e30f, -1e30f, -0.0f, 0.5f};
    int spm = take(in) & 1, off = take(in);
    unsigned n_bytes = take(in), n = take(in), n_merges = take(in);
    size_t n_tokens = n_bytes + n;
    char key[64], (*text)[3] = calloc(256, sizeof *text);

    MUST(text);
    build_begin(b, 3);
    build_string(b, "tokenizer.ggml.model", spm ? "llama" : "gpt2");
    build_string(b, "tokenizer.ggml.pre", rules[take(in) % 12]);
    build_array(b, "tokenizer.ggml.tokens", 8, n_tokens);
    for (unsigned i = 0; i < n_bytes; i++) { /* one-byte and two-byte texts: most of the alphabet */
        unsigned c = i + 33;

        if (c >= 128) {
            text[i][0] = (char)(0xC0 | c >> 6);
            text[i][1] = (char)(0x80 | (c & 63));
        } else {
            text[i][0] = (char)c;
        }
        build_str(b, text[i]);
    }
    for (unsigned i = 0; i < n; i++) {
        unsigned how = take(in);

        if (how & 1 && n_bytes) { /* two of the others joined: a merge may lead here */
            const char *l = text[take(in) % n_bytes], *r = text[take(in) % n_bytes];

            build_int(b, strlen(l) + strlen(r), 8);
            build_bytes(b, l, strlen(l));
            build_bytes(b, r, strlen(r));
        } else {
            take_str(in, b, how & 2 ? 200 : 8);
        }
    }
    build_array(b, "tokenizer.ggml.token_type", 5, n_tokens - (off == 1 && n_tokens));
    for (size_t i = 0; i < n_tokens - (off == 1 && n_tokens); i++)
        build_int(b, i < n_bytes ? 1 : off == 2 ? take(in) : 1 + take(in) % 6, 4);
    build_array(b, "tokenizer.ggml.scores", 6, n_tokens);
    for (size_t i = 0; i < n_tokens; i++) {
        float f = scores[take(in) % 8];

        build_bytes(b, &f, 4);
    }
    build_array(b, "tokenizer.ggml.merges", 8, n_merges);
    for (unsigned i = 0; i < n_merges; i++) {
        if (off == 3 || !n_bytes) {
            take_str(in, b, 12);
        } else {
            const char *l = text[take(in) % n_bytes], *r = text[take(in) % n_bytes];

            build_int(b, strlen(l) + strlen(r) + 1, 8);
            build_bytes(b, l, strlen(l));
            build_bytes(b, " ", 1);
            build_bytes(b, r, strlen(r));
        }
    }
    for (size_t i = 0; i < 6; i++) {
        unsigned id = take(in);

        if (!id)
            continue;
        snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", ids[i]);
        build_u32(b, key, off == 4 || !n_tokens ? id : (unsigned)(id % n_tokens));
    }
    for (size_t i = 0; i < 3; i++) {
        unsigned flag = take(in);

        snprintf(key, sizeof key, "tokenizer.ggml.add_%s", flags[i]);
        if (flag & 2)
            build_bool(b, key, flag & 1);
    }
    build_end(b);
    free(text);
}

static void check_stream(const struct tokenizer *t, const struct token_list *list, int flags)
{
    struct detok *raw = malloc(sizeof *raw), *json = malloc(sizeof *json);
    size_t n_raw = 0, n_pieces = 0;

    MUST(raw && json);
    detok_init(raw, t, 0, 0);
    detok_init(json, t, 1, flags & 1);
    raw->control_text = json->control_text = flags >> 1 & 1;
    for (size_t i = 0; i <= list->n; i++) {
        const char *out, *piece;
        size_t n, len;

        if (i < list->n) {
            MUST(list->ids[i] < tokenizer_n_vocab(t));
            token_piece(t, list->ids[i], raw->control_text, &piece, &len);
            n_pieces += len;
            detok_push(raw, list->ids[i], &out, &n);
        } else {
            detok_flush(raw, &out, &n);
        }
        n_raw += n;
        if (i < list->n)
            detok_push(json, list->ids[i], &out, &n);
        else
            detok_flush(json, &out, &n);
        for (size_t p = 0; p < n; p += len)
            MUST(utf8_next(out + p, n - p, &len) == UTF8_OK);
    }
    MUST(n_raw == n_pieces);
    free(raw);
    free(json);
}

static void check_text(struct tokenizer *t, const char *text, size_t n)
{
    for (int flags = 0; flags < 4; flags++) {
        struct token_list list = {0};
        struct err e = {0};

        MUST(tokenize(t, text, n, flags & 1, flags >> 1, &list, &e) == 0);
        MUST(list.n <= 4 * n + 8); /* a space in front of each fragment, a byte as U+FFFD */
        for (size_t i = 0; i < list.n; i++)
            (void)token_is_eog(t, list.ids[i]);
        check_stream(t, &list, flags);
        free(list.ids);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct in in = {data, n};
    struct build b = {0};
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    struct err e = {0};
    unsigned how = take(&in);
    const char *pre = how & 2 ? rules[(how >> 2) % 12] : NULL;
    size_t text_n = in.n;

    if (how & 1) {
        if (gguf_parse("fuzz", in.p, in.n, in.n, &g, &e))
            return 0;
        if (text_n > 1000)
            text_n = 1000; /* the file's own bytes are the text */
    } else {
        build_vocab(&in, &b);
        MUST(gguf_parse("fuzz", b.b, b.n, b.n, &g, &e) == 0);
        text_n = in.n;
    }
    if (tokenizer_open(g, pre, &t, &e)) {
        MUST(e.code && !strncmp(e.msg, "fuzz: ", 6) && !strchr(e.msg, '\n') && !t);
    } else {
        char *text = malloc(text_n + 1);

        MUST(text);
        memcpy(text, in.p, text_n);
        text = realloc(text, text_n ? text_n : 1); /* no byte behind the end */
        check_text(t, text, text_n);
        free(text);
        tokenizer_close(t);
    }
    gguf_close(g);
    build_free(&b);
    return 0;
}
