/* The tokenizer on small vocabularies made here and on the demo model's: refusals, special tokens,
 * ends of answers, streaming, merging against a naive twin, long words. The big vocabularies'
 * vectors are in tokenizer_golden_test.c. */
#include "coordinator/model/tokenizer.h"

#include <time.h>

#include "coordinator/json/json.h"
#include "coordinator/model/gguf_build.h"
#include "coordinator/model/vocab.h"
#include "tests/test.h"

#define IS(cond) CHECK(cond, "is not so")

/* --- vocabularies made here --------------------------------------------------------------------
 */

enum { MADE_MAX = 600 };

struct made {
    const char *model, *pre; /* NULL: no such key */
    struct {
        const char *text;
        int type;
        float score;
    } tok[MADE_MAX];
    size_t n;
    const char *merges[64];
    size_t n_merges;
    /* what is not as it should be */
    int no_merges, types_missing, types_short, scores_short, scores_int, tokens_as_numbers;
    struct {
        const char *key;
        uint32_t value;
    } ids[8], flags[4];
    size_t n_ids, n_flags;
};

static void add(struct made *m, const char *text, int type, float score)
{
    assert(m->n < MADE_MAX);
    m->tok[m->n].text = text;
    m->tok[m->n].type = type;
    m->tok[m->n++].score = score;
}

static void add_id(struct made *m, const char *key, uint32_t id)
{
    m->ids[m->n_ids].key = key;
    m->ids[m->n_ids++].value = id;
}

static void add_flag(struct made *m, const char *key, int flag)
{
    m->flags[m->n_flags].key = key;
    m->flags[m->n_flags++].value = (uint32_t)flag;
}

static struct gguf *make(const struct made *m)
{
    struct build b;
    struct gguf *g = NULL;
    struct err e = {0};
    char key[64];

    build_begin(&b, 3);
    if (m->model)
        build_string(&b, "tokenizer.ggml.model", m->model);
    if (m->pre)
        build_string(&b, "tokenizer.ggml.pre", m->pre);
    build_array(&b, "tokenizer.ggml.tokens", m->tokens_as_numbers ? 4 : 8, m->n);
    for (size_t i = 0; i < m->n; i++) {
        if (m->tokens_as_numbers)
            build_int(&b, i, 4);
        else
            build_str(&b, m->tok[i].text);
    }
    if (!m->types_missing) {
        build_array(&b, "tokenizer.ggml.token_type", 5, m->n - (size_t)m->types_short);
        for (size_t i = 0; i < m->n - (size_t)m->types_short; i++)
            build_int(&b, (uint32_t)m->tok[i].type, 4);
    }
    if (m->model && !strcmp(m->model, "llama")) {
        build_array(&b, "tokenizer.ggml.scores", m->scores_int ? 5 : 6,
                    m->n - (size_t)m->scores_short);
        for (size_t i = 0; i < m->n - (size_t)m->scores_short; i++) {
            if (m->scores_int)
                build_int(&b, (uint32_t)(int32_t)m->tok[i].score, 4);
            else
                build_bytes(&b, &m->tok[i].score, 4);
        }
    } else if (!m->no_merges) {
        build_array(&b, "tokenizer.ggml.merges", 8, m->n_merges);
        for (size_t i = 0; i < m->n_merges; i++)
            build_str(&b, m->merges[i]);
    }
    for (size_t i = 0; i < m->n_ids; i++) {
        snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", m->ids[i].key);
        build_u32(&b, key, m->ids[i].value);
    }
    for (size_t i = 0; i < m->n_flags; i++) {
        snprintf(key, sizeof key, "tokenizer.ggml.add_%s", m->flags[i].key);
        build_bool(&b, key, (int)m->flags[i].value);
    }
    build_end(&b);
    CHECK(gguf_parse("m.gguf", b.b, b.n, b.n, &g, &e) == 0, "%s", e.msg);
    build_free(&b);
    return g;
}

struct both {
    struct gguf *g;
    struct tokenizer *t;
};

static struct both open_made(const struct made *m)
{
    struct both b = {make(m), NULL};
    struct err e = {0};

    CHECK(tokenizer_open(b.g, NULL, &b.t, &e) == 0, "%s", e.msg);
    return b;
}

static void close_both(struct both b)
{
    tokenizer_close(b.t);
    gguf_close(b.g);
}

static void refused(const struct made *m, const char *pre, const char *message)
{
    struct gguf *g = make(m);
    struct tokenizer *t = NULL;
    struct err e = {0};

    CHECK(tokenizer_open(g, pre, &t, &e) < 0 && !t, "accepted, wanted: %s", message);
    CHECK_STR(e.msg, message);
    gguf_close(g);
}

/* All 256 bytes as tokens 0 to 255, in order of the byte's value. */
static struct made *bpe(const char *pre)
{
    static struct made m;
    static char text[256][3];

    m = (struct made){.model = "gpt2", .pre = pre};
    for (unsigned i = 0; i < 256; i++) {
        unsigned c = i;
        size_t k = 0;

        /* the alphabet, once more and in another way: count the bytes that have no own character */
        if (!((i >= '!' && i <= '~') || (i >= 0xA1 && i != 0xAD))) {
            c = 256;
            for (unsigned j = 0; j < i; j++)
                c += !((j >= '!' && j <= '~') || (j >= 0xA1 && j != 0xAD));
        }
        if (c >= 128)
            text[i][k++] = (char)(0xC0 | c >> 6);
        text[i][k] = (char)(c < 128 ? c : 0x80 | (c & 63));
        text[i][k + 1] = 0;
        add(&m, text[i], TOKEN_NORMAL, 0);
    }
    return &m;
}

/* "1 2 3" */
static const char *ids_of(struct tokenizer *t, const char *text, size_t n, int add_special,
                          int parse_special)
{
    static char out[4096];
    struct token_list list = {0};
    struct err e = {0};
    size_t k = 0;

    CHECK(tokenize(t, text, n, add_special, parse_special, &list, &e) == 0, "%s", e.msg);
    out[0] = 0;
    for (size_t i = 0; i < list.n && k < sizeof out - 16; i++)
        k += (size_t)snprintf(out + k, sizeof out - k, "%s%u", i ? " " : "", list.ids[i]);
    free(list.ids);
    return out;
}
#define IDS(t, text, add_special, parse_special)                                                   \
    ids_of(t, text, sizeof text - 1, add_special, parse_special)

/* --- refusals ----------------------------------------------------------------------------------
 */

static void test_refusals(void)
{
    static char long_text[TOKEN_TEXT_MAX + 2];
    struct made *m = bpe(NULL);

    refused(m, NULL,
            "m.gguf: tokenizer.ggml.pre is missing; name the split rule yourself (--pre NAME), one "
            "of: gpt-2, olmo, qwen2, qwen35, llama-bpe, glm4, glm5, chatglm-bpe, gpt-4o, "
            "deepseek-v3, deepseek-llm");
    m = bpe("kimi-k2");
    refused(m, NULL,
            "m.gguf: split rule (tokenizer.ggml.pre) 'kimi-k2' is not known; known are: gpt-2, "
            "olmo, qwen2, qwen35, llama-bpe, glm4, glm5, chatglm-bpe, gpt-4o, deepseek-v3, "
            "deepseek-llm");
    m = bpe("qwen2");
    m->model = "bert";
    refused(m, NULL,
            "m.gguf: tokenizer.ggml.model is 'bert': only gpt2 (byte-level BPE) and llama (SPM) "
            "are known");
    m = bpe("qwen2");
    m->types_short = 1;
    refused(m, NULL,
            "m.gguf: tokenizer.ggml.token_type has 255 entries, tokenizer.ggml.tokens has 256");
    m = bpe("qwen2");
    m->tok[7].type = 7;
    refused(m, NULL, "m.gguf: tokenizer.ggml.token_type: entry 7 is 7, known are 0 to 6");
    m = bpe("qwen2");
    m->tok[8].type = -1;
    refused(m, NULL, "m.gguf: tokenizer.ggml.token_type: entry 8 is -1, known are 0 to 6");
    m = bpe("qwen2");
    memset(long_text, 'x', TOKEN_TEXT_MAX + 1);
    add(m, long_text, TOKEN_NORMAL, 0);
    refused(m, NULL, "m.gguf: tokenizer.ggml.tokens: entry 256 has 4097 bytes, at most 4096 work");
    m = bpe("qwen2");
    m->merges[m->n_merges++] = "ab";
    refused(m, NULL,
            "m.gguf: tokenizer.ggml.merges: entry 0 is 'ab', wanted two parts and a space");
    m->merges[0] = "a ";
    refused(m, NULL,
            "m.gguf: tokenizer.ggml.merges: entry 0 is 'a ', wanted two parts and a space");
    m->merges[0] = " a";
    refused(m, NULL,
            "m.gguf: tokenizer.ggml.merges: entry 0 is ' a', wanted two parts and a space");
    m->merges[0] = "";
    refused(m, NULL, "m.gguf: tokenizer.ggml.merges: entry 0 is '', wanted two parts and a space");
    m->merges[0] = "xx a";
    refused(m, NULL,
            "m.gguf: tokenizer.ggml.merges: entry 0, 'xx a': its left part is not a token");
    m->merges[0] = "a x\x01";
    refused(m, NULL,
            "m.gguf: tokenizer.ggml.merges: entry 0, 'a x\\x01': its right part is not a token");
    m->merges[0] = "a b";
    refused(m, NULL, "m.gguf: tokenizer.ggml.merges: entry 0, 'a b': what it makes is not a token");
    m = bpe("llama");
    m->model = "llama";
    m->scores_short = 2;
    refused(m, NULL,
            "m.gguf: tokenizer.ggml.scores has 254 entries, tokenizer.ggml.tokens has 256");
    m->scores_short = 0;
    m->tok[3].score = 0.0f / 0.0f;
    refused(m, NULL, "m.gguf: tokenizer.ggml.scores: entry 3 is not a number");
    m->tok[3].score = 0;
    m->tok[4].type = TOKEN_BYTE;
    refused(m, NULL,
            "m.gguf: tokenizer.ggml.tokens: entry 4 is a byte token, but its text is '\\xC4\\x84' "
            "(<0xHH>)");
    m->tok[4].type = TOKEN_NORMAL;
    refused(m, "qwen2",
            "m.gguf: a vocabulary of kind llama is not split into words: no rule 'qwen2'");
}

/* Messages that the file reader words: they name the key and are one line. */
static void refused_about(const struct made *m, const char *about)
{
    struct gguf *g = make(m);
    struct tokenizer *t = NULL;
    struct err e = {0};

    CHECK(tokenizer_open(g, NULL, &t, &e) < 0 && !t, "accepted: %s", about);
    CHECK(strstr(e.msg, about) && !strchr(e.msg, '\n'), "'%s' does not name %s", e.msg, about);
    gguf_close(g);
}

static void test_wrong_kinds(void)
{
    struct made *m = bpe("qwen2");

    m->model = NULL;
    refused_about(m, "tokenizer.ggml.model");
    m = bpe("qwen2");
    m->no_merges = 1;
    refused_about(m, "tokenizer.ggml.merges");
    m = bpe("qwen2");
    m->tokens_as_numbers = 1;
    refused_about(m, "tokenizer.ggml.tokens");
    m = bpe("qwen2");
    add_id(m, "eos", 256);
    refused_about(m, "'tokenizer.ggml.eos_token_id': 256 (a token id from 0 to 255)");
    m = bpe("qwen2");
    add_id(m, "padding", 1000);
    refused_about(m, "'tokenizer.ggml.padding_token_id': 1000 (a token id from 0 to 255)");
    m = bpe("qwen2");
    m->n = 0;
    refused_about(m, "tokenizer.ggml.tokens has 0 entries, wanted 1 to 268435456");
}

/* --- byte-level BPE ----------------------------------------------------------------------------
 */

static void test_bpe(void)
{
    struct made *m = bpe("qwen2");
    struct both b;

    add(m, "ab", TOKEN_NORMAL, 0);         /* 256 */
    add(m, "bc", TOKEN_NORMAL, 0);         /* 257 */
    add(m, "abc", TOKEN_NORMAL, 0);        /* 258 */
    add(m, "\xC4\xA0x", TOKEN_NORMAL, 0);  /* 259: " x" */
    add(m, "zz", TOKEN_NORMAL, 0);         /* 260: no merge leads here */
    add(m, "", TOKEN_NORMAL, 0);           /* 261 */
    add(m, "\xE4\xBD\xA0", TOKEN_USER, 0); /* 262 */
    m->merges[m->n_merges++] = "b c";
    m->merges[m->n_merges++] = "a b";
    m->merges[m->n_merges++] = "ab c";
    m->merges[m->n_merges++] = "a bc";
    m->merges[m->n_merges++] = "\xC4\xA0 x";
    m->merges[m->n_merges++] = "a b"; /* again: rank 1 stays */
    b = open_made(m);
    CHECK_STR(IDS(b.t, "abc", 0, 0), "258"); /* bc first, then a bc */
    CHECK_STR(IDS(b.t, "abab", 0, 0), "256 256");
    CHECK_STR(IDS(b.t, "abcd x", 0, 0), "258 100 259");
    CHECK_STR(IDS(b.t, "zz", 0, 0), "122 122");
    CHECK_STR(IDS(b.t, "a\0b", 0, 0), "97 0 98");
    CHECK_STR(IDS(b.t, "", 1, 1), "");
    CHECK_STR(IDS(b.t, "\xE2\x82y", 0, 0), "239 191 189 239 191 189 121"); /* a U+FFFD each */
    CHECK_STR(IDS(b.t, "\xED\xA0\x80", 0, 0), "239 191 189 239 191 189 239 191 189");
    CHECK_STR(IDS(b.t, "\xE4\xBD\xA0\xE4\xBD", 0, 0), "262 239 191 189 239 191 189");
    CHECK_EQ(tokenizer_find(b.t, "[EMPTY_261]", 11), 261);
    CHECK_EQ(tokenizer_find(b.t, "abc", 3), 258);
    CHECK_EQ(tokenizer_find(b.t, "abd", 3), -1);
    CHECK_EQ(tokenizer_bos(b.t), -1);
    CHECK_EQ(tokenizer_eos(b.t), -1);
    close_both(b);

    m->pre = "glm4"; /* ignores merges where a word is a token */
    b = open_made(m);
    CHECK_STR(IDS(b.t, "zz", 0, 0), "260");
    CHECK_STR(IDS(b.t, "zzz", 0, 0), "122 122 122");
    close_both(b);

    m->tok['z'].text = "\xC4\xA0\xC4\xA0"; /* no token for the byte: it is dropped */
    m->pre = "qwen2";
    b = open_made(m);
    CHECK_STR(IDS(b.t, "azb", 0, 0), "97 98");
    close_both(b);

    m = bpe("qwen2");
    add(m, "a", TOKEN_NORMAL, 0); /* 256: a duplicate owns the text */
    b = open_made(m);
    CHECK_STR(IDS(b.t, "aa", 0, 0), "256 256");
    close_both(b);
}

static void test_bos_eos(void)
{
    struct made *m = bpe("qwen2");
    struct both b;

    add(m, "<s>", TOKEN_CONTROL, 0);
    add(m, "</s>", TOKEN_CONTROL, 0);
    add_id(m, "bos", 256);
    add_id(m, "eos", 257);
    b = open_made(m);
    CHECK_STR(IDS(b.t, "a", 1, 0), "97"); /* BPE adds none by itself */
    CHECK_EQ(tokenizer_add_bos(b.t), 0);
    close_both(b);
    m->pre = "llama-bpe";
    b = open_made(m);
    CHECK_STR(IDS(b.t, "a", 1, 0), "256 97");
    CHECK_STR(IDS(b.t, "a", 0, 0), "97");
    CHECK_EQ(tokenizer_add_bos(b.t), 1);
    close_both(b);
    add_flag(m, "bos_token", 0);
    add_flag(m, "eos_token", 1);
    b = open_made(m);
    CHECK_STR(IDS(b.t, "a", 1, 0), "97 257");
    CHECK_STR(IDS(b.t, "", 1, 0), "257");
    close_both(b);
    m = bpe("llama-bpe"); /* wants a BOS that does not exist */
    b = open_made(m);
    CHECK_STR(IDS(b.t, "a", 1, 0), "97");
    CHECK_EQ(tokenizer_add_bos(b.t), 0);
    close_both(b);
}

static void test_special(void)
{
    struct made *m = bpe("qwen2");
    struct both b;

    add(m, "<|a|>", TOKEN_CONTROL, 0);  /* 256 */
    add(m, "<|a|>b", TOKEN_CONTROL, 0); /* 257 */
    add(m, "<|a", TOKEN_USER, 0);       /* 258 */
    add(m, "a|>bc", TOKEN_CONTROL, 0);  /* 259 */
    add(m, "<unk>", TOKEN_UNKNOWN, 0);  /* 260 */
    add(m, "<none>", TOKEN_UNUSED, 0);  /* 261 */
    add(m, "\xFF\xFE", TOKEN_USER, 0);  /* 262: matched in raw bytes */
    b = open_made(m);
    CHECK_STR(IDS(b.t, "<|a|>", 0, 1), "256");
    CHECK_STR(IDS(b.t, "<|a|>bc", 0, 1), "257 99"); /* leftmost, then longest */
    CHECK_STR(IDS(b.t, "<|a|>", 0, 0), "258 124 62");
    CHECK_STR(IDS(b.t, "x<|ax", 0, 1), "120 258 120");
    CHECK_STR(IDS(b.t, "<|A|>", 0, 1), "60 124 65 124 62");
    CHECK_STR(IDS(b.t, "<unk><none>", 0, 1), "260 60 110 111 110 101 62");
    CHECK_STR(IDS(b.t, "<unk>", 0, 0), "60 117 110 107 62");
    CHECK_STR(IDS(b.t, "\xFF\xFE\xFF", 0, 0), "262 239 191 189");
    CHECK_STR(IDS(b.t, "<|a|><|a|", 0, 1), "256 258 124");
    close_both(b);
}

/* Ids of a text in which [ ] enclose what a user wrote. */
static const char *marked_ids(struct tokenizer *t, const char *shown)
{
    static char out[512];
    struct text_span user[8] = {{0, 0}};
    struct token_list list = {0};
    struct err e = {0};
    char text[128];
    size_t n = 0, n_user = 0, k = 0;

    for (; *shown; shown++) {
        if (*shown == '[')
            user[n_user].begin = n;
        else if (*shown == ']')
            user[n_user++].end = n;
        else
            text[n++] = *shown;
    }
    CHECK(tokenize_marked(t, text, n, user, n_user, 0, &list, &e) == 0, "%s", e.msg);
    out[0] = 0;
    for (size_t i = 0; i < list.n; i++)
        k += (size_t)snprintf(out + k, sizeof out - k, "%s%u", i ? " " : "", list.ids[i]);
    free(list.ids);
    return out;
}

/* Names of control tokens that touch a user's bytes are text; words are cut as if there were no marks. */
static void test_marked(void)
{
    struct made *m = bpe("qwen2");
    struct both b;

    add(m, "<|a|>", TOKEN_CONTROL, 0);  /* 256 */
    add(m, "<|a|>b", TOKEN_CONTROL, 0); /* 257 */
    add(m, "<|a", TOKEN_USER, 0);       /* 258 */
    add(m, "a|>bc", TOKEN_CONTROL, 0);  /* 259 */
    add(m, "<unk>", TOKEN_UNKNOWN, 0);  /* 260 */
    b = open_made(m);
    CHECK_STR(marked_ids(b.t, "<|a|>"), "256");
    CHECK_STR(marked_ids(b.t, "[<|a|>]"), "258 124 62");
    CHECK_STR(marked_ids(b.t, "<|a|>[<|a|>]<|a|>"), "256 258 124 62 256");
    CHECK_STR(marked_ids(b.t, "<|a|>[b]"), "256 98");         /* the shorter name ends before the mark */
    CHECK_STR(marked_ids(b.t, "[<]|a|>bc"), "258 124 62 98 99"); /* a user's token may touch it */
    CHECK_STR(marked_ids(b.t, "x[<|]a|>bc"), "120 258 124 62 98 99");
    CHECK_STR(marked_ids(b.t, "x[|]a|>bc"), "120 124 259");
    CHECK_STR(marked_ids(b.t, "<|a|[>]"), "258 124 62");
    CHECK_STR(marked_ids(b.t, "[<u]nk>[<unk]><unk>"), "60 117 110 107 62 60 117 110 107 62 260");
    CHECK_STR(marked_ids(b.t, "[a][b][c]"), "97 98 99");
    CHECK_STR(marked_ids(b.t, ""), "");
    close_both(b);
}

static void test_eog(void)
{
    static const struct {
        const char *text;
        int type, eog;
    } names[] = {
        {"<|eot_id|>", 3, 1},
        {"<|im_end|>", 3, 1},
        {"<|end|>", 3, 1},
        {"<|return|>", 3, 1},
        {"<|endoftext|>", 3, 1},
        {"<|eom_id|>", 3, 1},
        {"</s>", 1, 0},
        {"[EOS]", 4, 0},
        {"<|fim_pad|>", 4, 1},
        {"<|repo_name|>", 3, 1},
        {"<|file_sep|>", 1, 0},
        {"<|user|>", 3, 0},
        {"<\xEF\xBD\x9C"
         "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
         3, 1},
    };
    enum { N_NAMES = sizeof names / sizeof *names };
    struct made *m = bpe("qwen2");
    struct both b;

    for (size_t i = 0; i < N_NAMES; i++)
        add(m, names[i].text, names[i].type, 0);
    add_id(m, "eos", 'e');
    add_id(m, "eot", 't');
    add_id(m, "eom", 'm');
    b = open_made(m);
    for (unsigned i = 0; i < N_NAMES; i++)
        CHECK(token_is_eog(b.t, 256 + i) == names[i].eog, "%s", names[i].text);
    for (unsigned i = 0; i < 256; i++)
        CHECK_EQ(token_is_eog(b.t, i), i == 'e' || i == 't' || i == 'm');
    CHECK_EQ(token_is_eog(b.t, 100000), 0);
    close_both(b);
    add(m, "<|call|>", TOKEN_CONTROL, 0); /* with <|return|>: <|end|> only ends a message */
    b = open_made(m);
    CHECK_EQ(token_is_eog(b.t, 256 + 2), 0);
    CHECK_EQ(token_is_eog(b.t, 256 + N_NAMES), 1);
    close_both(b);
}

/* A GLM file names one end token; its answers end with two more. */
static void test_eog_of_glm(void)
{
    static const struct {
        const char *rule;
        int ends;
    } files[] = {{"glm4", 1}, {"glm5", 1}, {"qwen2", 0}};

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct made *m = bpe(files[i].rule);
        struct both b;

        add(m, "<|endoftext|>", TOKEN_CONTROL, 0);   /* 256 */
        add(m, "<|user|>", TOKEN_CONTROL, 0);        /* 257 */
        add(m, "<|assistant|>", TOKEN_CONTROL, 0);   /* 258 */
        add(m, "<|observation|>", TOKEN_CONTROL, 0); /* 259 */
        add_id(m, "eos", 256);
        b = open_made(m);
        CHECK_EQ(token_is_eog(b.t, 256), 1);
        CHECK_EQ(token_is_eog(b.t, 257), files[i].ends);
        CHECK_EQ(token_is_eog(b.t, 258), 0);
        CHECK_EQ(token_is_eog(b.t, 259), files[i].ends);
        close_both(b);
    }
}

/* --- SPM ---------------------------------------------------------------------------------------
 */

static struct made *spm(void)
{
    static struct made m;

    m = (struct made){.model = "llama"};
    add(&m, "<unk>", TOKEN_UNKNOWN, 0);        /* 0 */
    add(&m, "<s>", TOKEN_CONTROL, 0);          /* 1 */
    add(&m, "</s>", TOKEN_CONTROL, 0);         /* 2 */
    add(&m, "<0x0A>", TOKEN_BYTE, 0);          /* 3 */
    add(&m, "\xE2\x96\x81", TOKEN_NORMAL, -9); /* 4 */
    add(&m, "a", TOKEN_NORMAL, -9);            /* 5 */
    add(&m, "b", TOKEN_NORMAL, -9);            /* 6 */
    add(&m, "ab", TOKEN_NORMAL, -2);           /* 7 */
    add(&m, "ba", TOKEN_NORMAL, -1);           /* 8 */
    add(&m,
        "\xE2\x96\x81"
        "a",
        TOKEN_NORMAL, -3);                               /* 9 */
    add(&m, "\xE2\x96\x81\xE2\x96\x81", TOKEN_USER, -8); /* 10 */
    return &m;
}

static void test_spm(void)
{
    struct made *m = spm();
    struct both b = open_made(m);

    CHECK_STR(IDS(b.t, "ab", 1, 0), "1 4 7");
    CHECK_STR(IDS(b.t, "aba", 0, 0), "9 8");
    CHECK_STR(IDS(b.t, "aaa", 0, 0), "9 5 5");
    CHECK_STR(IDS(b.t, "", 1, 0), "1");
    CHECK_STR(IDS(b.t, "\n", 0, 0), "4 3");
    CHECK_STR(IDS(b.t, "x", 0, 0), "4 0"); /* no byte token: unknown */
    CHECK_STR(IDS(b.t, " a", 0, 0), "4 9");
    CHECK_STR(IDS(b.t, "a</s>a", 0, 1), "9 2 9");
    CHECK_STR(IDS(b.t,
                  "b\xE2\x96\x81\xE2\x96\x81"
                  "b",
                  0, 0),
              "4 6 10 4 6"); /* user-defined */
    CHECK_STR(IDS(b.t, "a\xE2", 0, 0), "9 0");
    close_both(b);
    add_flag(m, "space_prefix", 0);
    add_flag(m, "bos_token", 0);
    m->scores_int = 1;
    b = open_made(m);
    CHECK_STR(IDS(b.t, "ab", 1, 0), "7");
    CHECK_STR(IDS(b.t, "aba", 1, 0), "5 8");
    CHECK_STR(IDS(b.t, " a", 1, 0), "9");
    close_both(b);
}

/* --- back to text ------------------------------------------------------------------------------
 */

/* The stream's pieces, joined with '|', then what the end gives. */
static const char *streamed(const struct tokenizer *t, int replace, int from_start, int control,
                            const uint32_t *ids, size_t n)
{
    static char text[4096];
    struct detok d;
    size_t k = 0;

    detok_init(&d, t, replace, from_start);
    d.control_text = control;
    for (size_t i = 0; i <= n; i++) {
        const char *out;
        size_t len;

        if (i < n)
            detok_push(&d, ids[i], &out, &len);
        else
            detok_flush(&d, &out, &len);
        memcpy(text + k, out, len);
        k += len;
        text[k++] = i < n ? '|' : 0;
    }
    return text;
}
#define STREAM(t, replace, from_start, control, ...)                                               \
    streamed(t, replace, from_start, control, (const uint32_t[]){__VA_ARGS__},                     \
             sizeof((const uint32_t[]){__VA_ARGS__}) / 4)

static void test_stream(void)
{
    struct made *m = bpe("qwen2");
    struct both b;

    add(m, "<c>", TOKEN_CONTROL, 0);           /* 256 */
    add(m, "no", TOKEN_UNUSED, 0);             /* 257 */
    add(m, "\xC4\xA0\xC3\xA9", TOKEN_USER, 0); /* 258: as it is, no alphabet */
    b = open_made(m);
    CHECK_STR(STREAM(b.t, 1, 0, 0, 'a', 0xC3, 0xA9, 'b'), "a||\xC3\xA9|b|");
    CHECK_STR(STREAM(b.t, 1, 0, 0, 0xF0, 0x9F, 0x98, 0x80), "|||\xF0\x9F\x98\x80|");
    CHECK_STR(STREAM(b.t, 1, 0, 0, 0xF0, 0x9F, 'x'), "||\xEF\xBF\xBDx|");
    CHECK_STR(STREAM(b.t, 0, 0, 0, 0xF0, 0x9F, 'x'), "||\xF0\x9Fx|");
    CHECK_STR(STREAM(b.t, 1, 0, 0, 0xF0, 0x9F), "||\xEF\xBF\xBD");
    CHECK_STR(STREAM(b.t, 0, 0, 0, 0xF0, 0x9F), "||\xF0\x9F");
    CHECK_STR(STREAM(b.t, 1, 0, 0, 0xC0, 0xED, 0xA0), "\xEF\xBF\xBD||\xEF\xBF\xBD\xEF\xBF\xBD|");
    CHECK_STR(STREAM(b.t, 1, 0, 0, 0xE0, 0x80, 0xF4, 0x90),
              "|\xEF\xBF\xBD\xEF\xBF\xBD||\xEF\xBF\xBD\xEF\xBF\xBD|");
    CHECK_STR(STREAM(b.t, 1, 0, 0, 256, 'a', 257, 258, 70000), "|a||\xC4\xA0\xC3\xA9||");
    CHECK_STR(STREAM(b.t, 1, 0, 1, 256, 'a', 257), "<c>|a||");
    CHECK_STR(STREAM(b.t, 1, 1, 0, ' ', 'a'), " |a|"); /* BPE drops nothing */
    close_both(b);

    b = open_made(spm());
    CHECK_STR(STREAM(b.t, 1, 0, 0, 9, 4, 9), " a| | a|");
    CHECK_STR(STREAM(b.t, 1, 1, 0, 9, 4, 9), "a| | a|");
    CHECK_STR(STREAM(b.t, 1, 1, 1, 1, 9, 9), "<s>|a| a|"); /* BOS does not count */
    CHECK_STR(STREAM(b.t, 1, 1, 0, 1, 4, 9), "|| a|");
    CHECK_STR(STREAM(b.t, 1, 1, 0, 5, 9), "a| a|");
    CHECK_STR(STREAM(b.t, 1, 1, 0, 10, 3),
              "\xE2\x96\x81\xE2\x96\x81|\n|"); /* user-defined: as it is */
    close_both(b);
}

/* --- the demo model's vocabulary ---------------------------------------------------------------
 */

static struct both open_demo(void)
{
    struct both b = {0};
    struct err e = {0};

    CHECK(gguf_open("tests/demo/story-moe-q4_k_m.gguf", &b.g, &e) == 0 &&
              tokenizer_open(b.g, NULL, &b.t, &e) == 0,
          "%s", e.msg);
    return b;
}

static void test_demo_prompts(void)
{
    struct both b = open_demo();
    struct json_doc *d = NULL;
    struct err e = {0};
    const struct json *prompts;

    CHECK(json_load("tests/demo/ref/story-moe.json", NULL, &d, &e) == 0, "%s", e.msg);
    if (!d || !b.t)
        return;
    prompts = json_get(json_root(d), "prompts");
    CHECK(prompts && prompts->n >= 3, "no prompts");
    for (size_t i = 0; i < prompts->n; i++) {
        const struct json *text = json_get(&prompts->items[i], "text");
        const struct json *want = json_get(&prompts->items[i], "tokens");
        struct token_list list = {0};
        uint64_t id;

        CHECK(tokenize(b.t, text->text, text->n, 1, 1, &list, &e) == 0, "%s", e.msg);
        CHECK_EQ(list.n, want->n);
        for (size_t k = 0; k < want->n && k < list.n; k++)
            CHECK(!json_u64(&want->items[k], &id) && list.ids[k] == id, "prompt %zu, token %zu", i,
                  k);
        free(list.ids);
    }
    json_free(d);
    close_both(b);
}

static unsigned seed = 1;
static unsigned any(unsigned n)
{
    return ((seed = seed * 1664525 + 1013904223) >> 8) % n;
}

/* BPE as it is defined: look for the lowest rank again after every merge. */
static size_t naive(const struct tokenizer *t, const char *w, size_t n, uint32_t *id)
{
    for (size_t i = 0; i < n; i++)
        id[i] = t->byte_ids[(unsigned char)w[i]];
    for (;;) {
        const struct pair_slot *best = NULL;
        size_t at = 0;

        for (size_t i = 0; i + 1 < n; i++) {
            const struct pair_slot *p = vocab_pair(t, id[i], id[i + 1]);

            if (p && (!best || p->rank < best->rank)) {
                best = p;
                at = i;
            }
        }
        if (!best)
            return n;
        id[at] = best->id;
        n--;
        memmove(id + at + 1, id + at + 2, (n - at - 1) * sizeof *id);
    }
}

/* Both ways of merging (short and long words) against the naive one, on words of one letter run. */
static void test_merging(void)
{
    struct both b = open_demo();
    static const char letters[] = "etaoinshr";
    char w[300];
    uint32_t want[300];

    for (int round = 0; round < 3000 && b.t; round++) {
        size_t n = 1 + any(round % 10 ? 70 : sizeof w - 1), k;
        unsigned of = 1 + any(sizeof letters - 1);
        struct token_list list = {0};

        for (size_t i = 0; i < n; i++)
            w[i] = letters[any(of)];
        k = naive(b.t, w, n, want);
        IS(tokenize(b.t, w, n, 0, 0, &list, NULL) == 0);
        CHECK(list.n == k && !memcmp(list.ids, want, k * sizeof *want), "'%.*s' differs", (int)n,
              w);
        free(list.ids);
    }
    close_both(b);
}

/* decode(encode(x)) is x for all UTF-8 in BPE. */
static void test_round_trip(void)
{
    struct both b = open_demo();

    for (int round = 0; round < 500 && b.t; round++) {
        char text[1000], back[1000];
        size_t n = 0, k = 0;
        struct token_list list = {0};

        while (n < 900 && any(50)) {
            uint32_t c = any(4) ? any(128) : any(4) ? any(0x3000) : any(0x110000);

            if (c >= 0xD800 && c < 0xE000)
                c = '\n';
            if (c < 0x80) {
                text[n++] = (char)c;
            } else if (c < 0x800) {
                text[n++] = (char)(0xC0 | c >> 6);
                text[n++] = (char)(0x80 | (c & 63));
            } else {
                if (c < 0x10000) {
                    text[n++] = (char)(0xE0 | c >> 12);
                } else {
                    text[n++] = (char)(0xF0 | c >> 18);
                    text[n++] = (char)(0x80 | (c >> 12 & 63));
                }
                text[n++] = (char)(0x80 | (c >> 6 & 63));
                text[n++] = (char)(0x80 | (c & 63));
            }
        }
        IS(tokenize(b.t, text, n, 0, 0, &list, NULL) == 0);
        for (size_t i = 0; i < list.n; i++) {
            const char *piece;
            size_t len;

            token_piece(b.t, list.ids[i], 0, &piece, &len);
            memcpy(back + k, piece, len);
            k += len;
        }
        CHECK(k == n && !memcmp(back, text, n), "round %d does not come back", round);
        free(list.ids);
    }
    close_both(b);
}

/* Limits in processor time, far above what it takes, far below what a quadratic way would. */
static void test_long_words(void)
{
    enum { N = 1 << 20 };
    struct both b = open_demo(), s = open_made(spm());
    char *w = malloc(N);

    assert(w);
    for (int round = 0; round < 5 && b.t; round++) {
        struct tokenizer *t = round < 3 ? b.t : s.t;
        struct token_list list = {0};
        clock_t start = clock();
        double seconds;
        size_t bytes = 0;

        for (size_t i = 0; i < N; i++)
            w[i] = (char)(round == 0   ? 'a'
                          : round == 1 ? 'a' + any(26)
                          : round == 2 ? '<'
                          : round == 3 ? 'a' + any(2)
                                       : ' ');
        IS(tokenize(t, w, N, 0, 1, &list, NULL) == 0);
        seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
        seconds /= 10; /* the sanitizers' own cost */
#endif
        CHECK(seconds < 1, "1 MiB without a gap (%d) took %.2f s", round, seconds);
        for (size_t i = 0; i < list.n; i++) {
            const char *piece;
            size_t len;

            token_piece(t, list.ids[i], 0, &piece, &len);
            bytes += len;
        }
        CHECK_EQ(bytes, t == b.t ? N : round == 3 ? N + 1 : 3 * N + 1 /* pairs of U+2581 */);
        free(list.ids);
    }
    free(w);
    close_both(b);
    close_both(s);
}

/* Many names with a common beginning, and a text that almost matches at each byte. */
static void test_many_names(void)
{
    enum { N_NAMES = 300, N = 200000 };
    static char names[N_NAMES][24];
    struct made *m = bpe("qwen2");
    struct both b;
    char *text = malloc(N);
    struct token_list list = {0};
    clock_t start;

    for (int i = 0; i < N_NAMES; i++) {
        snprintf(names[i], sizeof names[i], "<<<<<<<<|%d|>", i);
        add(m, names[i], TOKEN_USER, 0);
    }
    b = open_made(m);
    for (int i = 0; i < N_NAMES; i++) {
        char want[16];

        snprintf(want, sizeof want, "60 %d", 256 + i);
        snprintf(text, N, "<%s", names[i]);
        CHECK_STR(ids_of(b.t, text, strlen(text), 0, 0), want);
    }
    memset(text, '<', N);
    start = clock();
    IS(tokenize(b.t, text, N, 0, 0, &list, NULL) == 0);
    CHECK((clock() - start) / CLOCKS_PER_SEC < 5, "special names take too long");
    CHECK_EQ(list.n, N);
    free(list.ids);
    free(text);
    close_both(b);
}

int main(void)
{
    test_refusals();
    test_wrong_kinds();
    test_bpe();
    test_bos_eos();
    test_special();
    test_marked();
    test_eog();
    test_eog_of_glm();
    test_spm();
    test_stream();
    test_demo_prompts();
    test_merging();
    test_round_trip();
    test_long_words();
    test_many_names();
    return test_end();
}
