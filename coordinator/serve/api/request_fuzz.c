/* A body for each of the APIs: refused with a status and a line, or prompts whose ids the model has, within the
 * limits. The first byte chooses the API and the template. Where it is text that was given out as an answer's
 * fault, it is JSON. */

/* FUZZ: coordinator/serve/api/request.c coordinator/serve/api/fields.c coordinator/serve/api/put.c
 * FUZZ: coordinator/serve/api/from_messages.c coordinator/serve/api/from_responses.c coordinator/serve/fault.c
 * FUZZ: coordinator/sample/sample.c coordinator/sample/philox.c
 * FUZZ: coordinator/sample/grammar_keep.c coordinator/sample/grammar.c
 * FUZZ: coordinator/sample/grammar/rules.c coordinator/sample/grammar/net.c
 * FUZZ: coordinator/sample/grammar/gbnf.c coordinator/sample/grammar/schema.c coordinator/sample/grammar/schema_merge.c
 * FUZZ: coordinator/sample/grammar/pattern.c coordinator/sample/grammar/number.c coordinator/sample/grammar/sets.c
 * FUZZ: coordinator/sample/grammar/trie.c
 * FUZZ: coordinator/chat/chat.c coordinator/chat/prepare.c
 * FUZZ: coordinator/chat/jinja/access.c coordinator/chat/jinja/call.c coordinator/chat/jinja/case_table.c
 * FUZZ: coordinator/chat/jinja/core.c coordinator/chat/jinja/eval.c coordinator/chat/jinja/lex.c
 * FUZZ: coordinator/chat/jinja/parse.c coordinator/chat/jinja/print.c coordinator/chat/jinja/text.c
 * FUZZ: coordinator/chat/jinja/value.c
 * FUZZ: coordinator/json/json.c coordinator/json/json_write.c
 * FUZZ: coordinator/model/tokenizer.c coordinator/model/vocab_load.c coordinator/model/vocab.c
 * FUZZ: coordinator/model/alphabet.c coordinator/model/bpe.c coordinator/model/spm.c
 * FUZZ: coordinator/model/detok.c coordinator/model/merge.c coordinator/model/special.c
 * FUZZ: coordinator/model/split.c coordinator/model/unicode_table.c coordinator/model/utf8.c
 * FUZZ: coordinator/model/gguf.c coordinator/model/gguf_front.c coordinator/model/gguf_split.c
 * FUZZ: coordinator/pack/pack.c -lxxhash -lyajl
 * FUZZ: kernels/type/type.c shm/err.c
 */
#include "coordinator/serve/api/request.h"

#include "coordinator/model/gguf_build.h"
#include "kernels/func/func.h"
#include "kernels/topk/topk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define MUST(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond))                                                                               \
            abort();                                                                               \
    } while (0)

/* Settings are checked by the file that samples, too; nothing is sampled here. */
void vec_exp(const float *x, float *y, size_t n)
{
    (void)x, (void)y, (void)n;
    abort();
}
void order_topk(const float *v, uint32_t n, uint32_t k, uint32_t *idx)
{
    (void)v, (void)n, (void)k, (void)idx;
    abort();
}
int32_t order_key(float v)
{
    (void)v;
    abort();
}

enum { N_BYTES = 256, N_VOCAB = 3 + N_BYTES };

static const char *const templates[] = {
    "{% for m in messages %}<s>{{ m.role }}:{{ m.content }}{{ m.tool_calls }}</s>{% endfor %}{{ tools }}<think>",
    "{% for m in messages %}{{ m.content | trim }}{% if m.tool_calls %}[TOOL_CALLS]{{ m.tool_calls | tojson }}{% endif "
    "%}{% endfor %}",
};

/* Bytes, and three control tokens. */
static struct served *open_served(void)
{
    static struct served s[2];
    struct build w;
    static struct gguf *g; /* they stay */
    static struct grammar_vocab *v[2];
    struct err e = {0};
    char name[8];

    build_begin(&w, 3);
    build_string(&w, "tokenizer.ggml.model", "llama");
    build_array(&w, "tokenizer.ggml.tokens", 8, N_VOCAB);
    build_str(&w, "<unk>");
    build_str(&w, "<s>");
    build_str(&w, "</s>");
    for (int i = 0; i < N_BYTES; i++) {
        snprintf(name, sizeof name, "<0x%02X>", i);
        build_str(&w, name);
    }
    build_array(&w, "tokenizer.ggml.token_type", 5, N_VOCAB);
    for (int i = 0; i < N_VOCAB; i++)
        build_int(&w, !i ? 2 : i < 3 ? 3 : 6, 4);
    build_array(&w, "tokenizer.ggml.scores", 6, N_VOCAB);
    for (int i = 0; i < N_VOCAB; i++)
        build_int(&w, 0, 4);
    build_u32(&w, "tokenizer.ggml.bos_token_id", 1);
    build_u32(&w, "tokenizer.ggml.eos_token_id", 2);
    build_end(&w);
    MUST(!gguf_parse("fuzz", w.b, w.n, w.n, &g, &e));
    build_free(&w);
    for (int i = 0; i < 2; i++) {
        s[i] = (struct served){
            .name = "fuzz", .n_vocab = N_VOCAB, .n_predict = -1, .thinking = -1, .n_ctx = 1000, .thinks = !i};
        sample_defaults(&s[i].settings);
        MUST(!tokenizer_open(g, NULL, &s[i].tok, &e) && !grammar_vocab_new(s[i].tok, N_VOCAB, &v[i], &e) &&
             !grammar_keep_new(v[i], &s[i].grammars, &e) &&
             !chat_open("fuzz", templates[i], strlen(templates[i]), "<s>", "</s>", &s[i].template, &e));
    }
    return s;
}

static void check_request(const struct served *m, const struct request *r)
{
    struct err e = {0};

    MUST(r->n_prompts && r->n >= 1 && r->n * r->n_prompts <= REQUEST_ANSWERS_MAX && r->max_tokens >= -1);
    MUST(!sample_check(&r->settings, &e) && r->settings.n_bias <= REQUEST_BIASES_MAX);
    MUST(r->n_probs >= -1 && r->n_probs <= JOB_PROBS_MOST && r->stops.n <= REQUEST_STOPS_MAX);
    for (size_t i = 0; i < r->n_prompts; i++) {
        MUST(r->prompt[i].ids.n);
        for (size_t k = 0; k < r->prompt[i].ids.n; k++)
            MUST(r->prompt[i].ids.ids[k] < m->n_vocab);
    }
    for (size_t i = 0; i < r->settings.n_bias; i++)
        MUST(r->settings.bias[i].token < m->n_vocab);
    for (size_t i = 0; i < r->stops.n; i++)
        MUST(r->stop_len[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct served *served;
    const struct served *m;
    struct request r;
    struct fault f = {0};
    char text[FAULT_TEXT];
    enum api_kind api;

    if (!served)
        served = open_served();
    if (!n || n > 4000)
        return 0;
    m = &served[data[0] / 5 % 2];
    api = (enum api_kind)(data[0] % 5);
    if (request_read(m, api, (const char *)data + 1, n - 1, &r, &f)) {
        struct json_doc *d = NULL;
        struct err e = {0};
        size_t size = fault_text(&f, api == API_MESSAGES ? FAULT_ANTHROPIC : FAULT_OPENAI, "req-1", text);

        MUST(f.status >= 400 && f.status < 600 && *f.message && size < FAULT_TEXT);
        MUST(!json_parse("fault", text, size, NULL, &d, &e));
        json_free(d);
    } else {
        MUST(!f.status);
        check_request(m, &r);
    }
    request_free(&r);
    return 0;
}
