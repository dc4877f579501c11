/* A template, a conversation and a model's output out of one input, parted by NUL bytes: refused with a line,
 * or a rendering whose spans are in order, and an answer that does not depend on how it was cut.
 * The first byte chooses the format and the start of the answer. */

/* FUZZ: coordinator/chat/chat.c coordinator/chat/prepare.c coordinator/chat/answer.c
 * FUZZ: coordinator/chat/answer_calls.c
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
#include <stdlib.h>
#include <string.h>

#include "coordinator/chat/answer.h"
#include "coordinator/chat/chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define MUST(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond))                                                                               \
            abort();                                                                               \
    } while (0)

struct part {
    const char *s;
    size_t n;
};

static struct part take(const uint8_t **data, size_t *n)
{
    const uint8_t *end = *n ? memchr(*data, 0, *n) : NULL;
    struct part p = {(const char *)*data, end ? (size_t)(end - *data) : *n};

    *data += p.n + (end != NULL);
    *n -= p.n + (end != NULL);
    return p;
}

static void one_line(const struct err *e)
{
    MUST(e->code < 0 && e->msg[0] && !strchr(e->msg, '\n'));
}

/* The engine alone, with little of everything, so that an input takes no seconds. */
static void engine(struct part source, const struct json *messages)
{
    struct jinja_limits limits = {.steps = 20000, .output = 1 << 16, .memory = 4 << 20};
    struct tm now = {.tm_year = 126, .tm_mday = 1};
    struct jinja_var v[] = {{"messages", messages, 0}, {"m", messages, 1}};
    struct jinja *t = NULL;
    struct jinja_text out = {0};
    struct jinja_fault f;
    struct err e = {0};

    if (jinja_parse("fuzz", source.s, source.n, &t, &f, &e)) {
        MUST(!t && f.kind != JINJA_OK);
        one_line(&e);
        return;
    }
    if (jinja_render(t, v, 2, &now, &limits, &out, &f, &e)) {
        MUST(!out.s && !out.user && f.kind != JINJA_OK);
        one_line(&e);
    } else {
        size_t at = 0;

        MUST(out.n <= limits.output && !out.s[out.n]);
        for (size_t i = 0; i < out.n_user; i++) {
            MUST(out.user[i].begin < out.user[i].end && (!i || out.user[i].begin > at) && out.user[i].end <= out.n);
            at = out.user[i].end;
        }
    }
    jinja_text_free(&out);
    jinja_free(t);
}

/* Messages that are prepared for a template that prints all of them. */
static void request(struct part mark, const struct json *messages)
{
    static const char shows[] = "{% for m in messages %}{{ m.role + m.content | string + m | tojson }}{% endfor %}";
    struct chat_request q = {.messages = messages, .tools = messages, .thinking = -1};
    struct chat_template *t = NULL;
    struct chat_prompt p;
    struct err e = {0};
    char source[200];
    size_t n = mark.n < 40 ? mark.n : 40;

    memcpy(source, mark.s, n);
    memcpy(source + n, shows, sizeof shows - 1);
    if (chat_open("fuzz", source, n + sizeof shows - 1, "<s>", "", &t, &e)) {
        one_line(&e);
        return;
    }
    if (chat_render(t, &q, &p, NULL, &e))
        one_line(&e);
    chat_prompt_free(&p);
    chat_close(t);
}

static struct answer *answered(const struct answer_options *o, struct part text, size_t piece)
{
    struct answer *a = NULL;
    struct err e = {0};

    MUST(!answer_new(o, &a, &e));
    for (size_t p = 0; p < text.n; p += piece)
        MUST(!answer_push(a, text.s + p, text.n - p < piece ? text.n - p : piece, &e));
    MUST(!answer_end(a, &e));
    return a;
}

static void answers(unsigned choice, struct part text, const struct json *tools)
{
    struct answer_options o = {(enum chat_format)(choice % (CHAT_MISTRAL + 1)), (enum chat_start)(choice / 16 % 3), tools, choice};
    struct answer *a = answered(&o, text, text.n + 1), *b = answered(&o, text, 1 + choice / 64);
    size_t n[2], m[2];

    MUST(!strcmp(answer_reasoning(a, &n[0]), answer_reasoning(b, &n[1])) && n[0] == n[1]);
    MUST(!memcmp(answer_content(a, &m[0]), answer_content(b, &m[1]), m[0]) && m[0] == m[1]);
    MUST(answer_n_calls(a) == answer_n_calls(b));
    for (size_t i = 0; i < answer_n_calls(a); i++) {
        const struct answer_call *x = answer_call(a, i), *y = answer_call(b, i);
        struct json_doc *d = NULL;
        struct err e = {0};

        MUST(!strcmp(x->id, y->id) && !strcmp(x->name, y->name) && !strcmp(x->arguments, y->arguments));
        MUST(!json_parse("arguments", x->arguments, strlen(x->arguments), NULL, &d, &e));
        MUST(json_root(d)->kind == JSON_OBJECT);
        json_free(d);
    }
    answer_free(a);
    answer_free(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char fallback[] = "[{\"role\": \"user\", \"content\": \"<|x|> \xC3\xA9\\n\", \"l\": [1, 2.5, null, true]}]";
    struct json_limits limits = {.depth = 300, .bytes = 1 << 16};
    struct part source, messages, text;
    struct json_doc *d = NULL;
    unsigned choice;

    if (!n)
        return 0;
    choice = *data++;
    n--;
    source = take(&data, &n);
    messages = take(&data, &n);
    text = take(&data, &n);
    if (json_parse("fuzz", messages.s, messages.n, &limits, &d, NULL))
        MUST(!json_parse("fuzz", fallback, sizeof fallback - 1, NULL, &d, NULL));
    engine(source, json_root(d));
    request(source, json_root(d));
    answers(choice, text, json_root(d));
    json_free(d);
    return 0;
}
