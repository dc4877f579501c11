/* A template and what is known of it; a request rendered; the prompt's ids. */
#define _GNU_SOURCE
#include "coordinator/chat/chat.h"

#include <stdlib.h>
#include <string.h>

#include "coordinator/chat/prepare.h"

enum { VARS_MAX = 128 };

struct chat_template {
    struct jinja *jinja;
    char *bos, *eos;
    enum chat_format format;
    int takes_parts;
};

/* ---- formats ---- */

static const struct {
    const char *mark;
    enum chat_format format;
} marks[] = {
    /* the first that is in the template decides: what is more special comes first */
    {"<|channel|>", CHAT_GPT_OSS},
    {"\xEF\xBD\x9C"
     "DSML\xEF\xBD\x9C",
     CHAT_DSML},
    {"<\xEF\xBD\x9Ctool\xE2\x96\x81"
     "calls\xE2\x96\x81"
     "begin\xEF\xBD\x9C>",
     CHAT_DEEPSEEK},
    {"<|tool_calls_section_begin|>", CHAT_KIMI},
    {"[TOOL_CALLS]", CHAT_MISTRAL},
    {"<function=", CHAT_QWEN_XML},
    {"<arg_key>", CHAT_GLM},
    {"<tool_call>", CHAT_HERMES},
    {"<|python_tag|>", CHAT_LLAMA},
};

const char *chat_format_name(enum chat_format f)
{
    static const char *const names[] = {"plain", "hermes", "qwen-xml", "glm",   "deepseek",
                                        "dsml",  "kimi",   "gpt-oss",  "llama", "mistral"};

    return names[f];
}

enum chat_format chat_format(const struct chat_template *t)
{
    return t->format;
}

int chat_takes_parts(const struct chat_template *t)
{
    return t->takes_parts;
}

/* ---- opening ---- */

static struct json text_value(const char *s, size_t n)
{
    return (struct json){.kind = JSON_STRING, .text = s, .n = n};
}

/* Renders a user's message whose content is a list with one text: a template that does not expect that fails,
 * or prints the list. */
static int probe_parts(const struct chat_template *t)
{
    static const char text[] = "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"<probe>\"}]}]";
    struct json yes = {.kind = JSON_BOOL, .truth = 1}, bos = text_value(t->bos, strlen(t->bos)),
                eos = text_value(t->eos, strlen(t->eos));
    struct tm now = {.tm_mday = 1};
    struct json_doc *d = NULL;
    struct jinja_text out = {0};
    int takes = 0;

    if (json_parse("probe", text, sizeof text - 1, NULL, &d, NULL))
        return 0;
    {
        struct jinja_var v[] = {
            {"messages", json_root(d), 0}, {"add_generation_prompt", &yes, 1}, {"bos_token", &bos, 1}, {"eos_token", &eos, 1}};

        if (!jinja_render(t->jinja, v, 4, &now, NULL, &out, NULL, NULL))
            takes = strstr(out.s, "<probe>") && !strstr(out.s, "'<probe>'") && !strstr(out.s, "\"<probe>\"");
    }
    jinja_text_free(&out);
    json_free(d);
    return takes;
}

int chat_open(const char *name, const char *source, size_t n, const char *bos, const char *eos,
              struct chat_template **out, struct err *e)
{
    struct chat_template *t = calloc(1, sizeof *t);
    int rc;

    if (!t || !(t->bos = strdup(bos)) || !(t->eos = strdup(eos))) {
        chat_close(t);
        return err_set(e, -ENOMEM, "%s: no memory", name);
    }
    rc = jinja_parse(name, source, n, &t->jinja, NULL, e);
    if (rc) {
        chat_close(t);
        return rc;
    }
    for (size_t i = sizeof marks / sizeof *marks; i-- > 0;)
        if (memmem(source, n, marks[i].mark, strlen(marks[i].mark)))
            t->format = marks[i].format;
    t->takes_parts = probe_parts(t);
    *out = t;
    return 0;
}

static void token_text(const struct tokenizer *t, int64_t id, char out[TOKEN_TEXT_MAX + 1])
{
    const char *s = "";
    size_t n = 0;

    if (id >= 0)
        token_piece(t, (uint32_t)id, 1, &s, &n);
    memcpy(out, s, n);
    out[n] = 0;
}

int chat_open_model(const struct gguf *g, const struct tokenizer *t, const char *name, const char *source, size_t n,
                    struct chat_template **out, struct err *e)
{
    char bos[TOKEN_TEXT_MAX + 1], eos[TOKEN_TEXT_MAX + 1];
    struct gguf_str s;
    int rc;

    if (!source) {
        rc = gguf_string(g, "tokenizer.chat_template", &s);
        if (rc == 1)
            return err_set(e, -ENOENT, "%s: the model has no chat template (tokenizer.chat_template); give one with "
                           "--chat-template FILE", name);
        if (rc)
            return gguf_why(g, "tokenizer.chat_template", "a string", e);
        source = s.s;
        n = s.n;
    }
    token_text(t, tokenizer_bos(t), bos);
    token_text(t, tokenizer_eos(t), eos);
    return chat_open(name, source, n, bos, eos, out, e);
}

void chat_close(struct chat_template *t)
{
    if (!t)
        return;
    jinja_free(t->jinja);
    free(t->bos);
    free(t->eos);
    free(t);
}

/* ---- rendering ---- */

struct vars {
    struct jinja_var v[VARS_MAX];
    size_t n;
};

/* A later variable of a name wins. */
static void add(struct vars *v, const char *name, const struct json *value, int ours)
{
    for (size_t i = 0; i < v->n; i++)
        if (!strcmp(v->v[i].name, name)) {
            v->v[i] = (struct jinja_var){name, value, ours};
            return;
        }
    if (v->n < VARS_MAX)
        v->v[v->n++] = (struct jinja_var){name, value, ours};
}

static int add_kwargs(struct vars *v, const struct json *kwargs, struct err *e)
{
    static const char *const ours[] = {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"};

    if (!kwargs || kwargs->kind == JSON_NULL)
        return 0;
    if (kwargs->kind != JSON_OBJECT)
        return err_set(e, -EINVAL, "chat_template_kwargs: an object is wanted");
    for (size_t i = 0; i < kwargs->n; i++) {
        const struct json *k = &kwargs->items[i];

        for (size_t j = 0; j < sizeof ours / sizeof *ours; j++)
            if (!strcmp(k->key, ours[j]))
                return err_set(e, -EINVAL, "chat_template_kwargs: '%s' cannot be set there", ours[j]);
        if (v->n == VARS_MAX)
            return err_set(e, -EINVAL, "chat_template_kwargs: more than %d variables", VARS_MAX);
        add(v, k->key, k, 0);
    }
    return 0;
}

/* What add_generation_prompt added, from the first byte on that differs. */
static enum chat_start start_of(const struct jinja_text *without, const struct jinja_text *with)
{
    static const char open[] = "<think>", shut[] = "</think>";
    const char *s, *last = NULL;
    size_t from = 0, end = with->n;

    while (from < without->n && from < with->n && without->s[from] == with->s[from])
        from++;
    s = with->s + from;
    for (const char *p = s; (p = memmem(p, (size_t)(with->s + with->n - p), open, sizeof open - 1)); p++)
        last = p;
    if (last && !memmem(last, (size_t)(with->s + with->n - last), shut, sizeof shut - 1))
        return CHAT_REASONING;
    while (end > from && strchr(" \t\r\n", with->s[end - 1]) && with->s[end - 1])
        end--;
    if (end - from >= sizeof shut - 1 && !memcmp(with->s + end - (sizeof shut - 1), shut, sizeof shut - 1))
        return CHAT_CONTENT;
    return CHAT_AUTO;
}

int chat_render(const struct chat_template *t, const struct chat_request *q, struct chat_prompt *out,
                struct jinja_fault *f, struct err *e)
{
    static const struct json yes = {.kind = JSON_BOOL, .truth = 1}, no = {.kind = JSON_BOOL, .truth = 0};
    struct prepare_rules rules = {.join_parts = !t->takes_parts,
                                  .nine_ids = t->format == CHAT_MISTRAL,
                                  .order_results = t->format == CHAT_DSML,
                                  .one_thought = t->format == CHAT_GPT_OSS};
    struct json bos = text_value(t->bos, strlen(t->bos)), eos = text_value(t->eos, strlen(t->eos)), effort;
    struct jinja_text without = {0};
    struct prepared p;
    struct vars v = {.n = 0};
    int rc;

    *out = (struct chat_prompt){.start = CHAT_AUTO};
    if (f)
        *f = (struct jinja_fault){0};
    if (q->tools && q->tools->kind != JSON_ARRAY && q->tools->kind != JSON_NULL)
        return err_set(e, -EINVAL, "tools: an array is wanted");
    if ((rc = prepare_messages(q->messages, &rules, &p, e)))
        return rc;
    add(&v, "messages", &p.messages, 0);
    add(&v, "add_generation_prompt", q->no_generation_prompt ? &no : &yes, 1);
    add(&v, "bos_token", &bos, 1);
    add(&v, "eos_token", &eos, 1);
    if (q->tools && q->tools->kind == JSON_ARRAY)
        add(&v, "tools", q->tools, 0);
    if (q->response_format)
        add(&v, "response_format", q->response_format, 0);
    if (q->reasoning_effort) {
        effort = text_value(q->reasoning_effort, strlen(q->reasoning_effort));
        add(&v, "reasoning_effort", &effort, 0);
    }
    if (q->thinking >= 0) {
        add(&v, "enable_thinking", q->thinking ? &yes : &no, 1);
        add(&v, "thinking", q->thinking ? &yes : &no, 1);
    }
    if (q->keep_reasoning) {
        add(&v, "clear_thinking", &no, 1);
        add(&v, "drop_thinking", &no, 1);
        add(&v, "preserve_thinking", &yes, 1);
    }
    rc = add_kwargs(&v, q->kwargs, e);
    if (!rc)
        rc = jinja_render(t->jinja, v.v, v.n, q->now, NULL, &out->text, f, e);
    if (!rc && !q->no_generation_prompt) {
        v.v[1].value = &no;
        rc = jinja_render(t->jinja, v.v, v.n, q->now, NULL, &without, f, e);
        if (!rc)
            out->start = start_of(&without, &out->text);
    }
    jinja_text_free(&without);
    if (rc)
        chat_prompt_free(out);
    prepared_free(&p);
    return rc;
}

void chat_prompt_free(struct chat_prompt *p)
{
    jinja_text_free(&p->text);
}

int chat_tokenize(struct tokenizer *t, const struct jinja_text *text, int allow_control, struct token_list *out,
                  struct err *e)
{
    const char *bos = "";
    size_t bos_n = 0, skip = 0, k = 0;
    struct text_span *user;
    int rc;

    /* a template that writes BOS itself: the id that add_special puts in front is enough */
    if (tokenizer_add_bos(t))
        token_piece(t, (uint32_t)tokenizer_bos(t), 1, &bos, &bos_n);
    if (bos_n && text->n >= bos_n && !memcmp(text->s, bos, bos_n) &&
        (allow_control || !text->n_user || text->user[0].begin >= bos_n))
        skip = bos_n;
    if (allow_control)
        return tokenize(t, text->s + skip, text->n - skip, 1, 1, out, e);
    user = malloc((text->n_user + 1) * sizeof *user);
    if (!user)
        return err_set(e, -ENOMEM, "no memory for %zu spans", text->n_user);
    for (; k < text->n_user; k++)
        user[k] = (struct text_span){text->user[k].begin - skip, text->user[k].end - skip};
    rc = tokenize_marked(t, text->s + skip, text->n - skip, user, k, 1, out, e);
    free(user);
    return rc;
}
