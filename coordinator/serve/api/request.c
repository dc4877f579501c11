/* From a body to what is to be computed. Every refusal names its field; nothing is taken silently that would
 * change the answer. */
#define _GNU_SOURCE
#include "coordinator/serve/api/request.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "coordinator/serve/api/fields.h"

static int no_memory(struct fault *f)
{
    return fault_set(f, 500, NULL, "no memory for the request");
}

/* ---- sampling ---- */

static void read_seed(const struct served *m, const struct json *b, struct sample_settings *s, struct fault *f)
{
    const struct json *v = field_any(b, "seed");
    uint32_t chosen = 0;
    int64_t x = 0;

    s->seed = m->settings.seed;
    if (v && v->kind == JSON_NUMBER && !json_u64(v, &s->seed))
        return;
    if (v && (v->kind != JSON_NUMBER || json_i64(v, &x))) {
        fault_set(f, 400, "seed", "seed: a whole number of at most 64 bits is wanted");
        return;
    }
    if (v && x != -1) {
        s->seed = (uint64_t)x;
    } else if (!m->fixed_seed) {
        if (getrandom(&chosen, sizeof chosen, 0) != sizeof chosen)
            fault_set(f, 500, "seed", "no random number for a seed");
        s->seed = chosen;
    }
}

/* text: key may be something else than a number. */
static int add_bias(const struct served *m, struct request *r, const char *key, size_t n, int text, double value,
                    struct fault *f)
{
    char *end;
    unsigned long id = strtoul(key, &end, 10);
    struct token_list ids = {0};
    struct err e = {0};

    if (n && (size_t)(end - key) == n && *key >= '0' && *key <= '9') {
        if (id >= m->n_vocab)
            return fault_set(f, 400, "logit_bias", "logit_bias: token %lu is not in the vocabulary of %u", id,
                             m->n_vocab);
        ids.ids = malloc(sizeof *ids.ids);
        if (!ids.ids)
            return no_memory(f);
        ids.ids[ids.n++] = (uint32_t)id;
    } else if (!text) {
        return fault_set(f, 400, "logit_bias", "logit_bias: '%.40s' is no token", key);
    } else if (tokenize(m->tok, key, n, 0, 1, &ids, &e)) {
        free(ids.ids);
        return fault_set(f, 400, "logit_bias", "logit_bias: %s", e.msg);
    }
    for (size_t i = 0; i < ids.n && !f->status; i++) {
        if (r->settings.n_bias == REQUEST_BIASES_MAX)
            fault_set(f, 400, "logit_bias", "logit_bias: more than %d tokens", REQUEST_BIASES_MAX);
        else
            r->bias[r->settings.n_bias++] = (struct sample_bias){ids.ids[i], value};
    }
    free(ids.ids);
    return f->status;
}

static double bias_value(const struct json *v, struct fault *f)
{
    double x = 0;

    if (v && v->kind == JSON_BOOL && !v->truth)
        return -INFINITY;
    if (!v || json_f64(v, &x) || !isfinite(x))
        fault_set(f, 400, "logit_bias", "logit_bias: a number, or false for never, is wanted");
    return x;
}

/* OpenAI's map from id to number; llama.cpp's list of pairs, where a text stands for all its tokens. */
static void read_biases(const struct served *m, struct request *r, struct fault *f)
{
    const struct json *b = field_any(r->body, "logit_bias");

    if (!b || f->status)
        return;
    if (b->kind != JSON_OBJECT && b->kind != JSON_ARRAY) {
        fault_set(f, 400, "logit_bias", "logit_bias: an object or an array is wanted");
        return;
    }
    r->bias = malloc(REQUEST_BIASES_MAX * sizeof *r->bias);
    if (!r->bias) {
        no_memory(f);
        return;
    }
    for (size_t i = 0; i < b->n && !f->status; i++) {
        const struct json *x = &b->items[i], *who = json_at(x, 0);

        if (b->kind == JSON_OBJECT)
            add_bias(m, r, x->key, x->key_n, 0, bias_value(x, f), f);
        else if (who && (who->kind == JSON_NUMBER || who->kind == JSON_STRING) && x->n == 2)
            add_bias(m, r, who->text, who->n, who->kind == JSON_STRING, bias_value(json_at(x, 1), f), f);
        else
            fault_set(f, 400, "logit_bias", "logit_bias[%zu]: a pair of a token and a number is wanted", i);
    }
    r->settings.bias = r->bias;
}

/* Samplers that have no definition here are refused unless they are off. */
static void refuse_sampler(const struct json *b, const char *key, double off, struct fault *f)
{
    double x = off;

    if (field_f64(b, key, -INFINITY, INFINITY, &x, f) && x != off)
        fault_set(f, 400, key,
                  "%s: this sampler has no definition here (temperature, top-k, top-p, min-p and penalties "
                  "have); leave it out",
                  key);
}

static void read_sampling(const struct served *m, struct request *r, struct fault *f)
{
    const struct json *b = r->body;
    struct sample_settings *s = &r->settings;
    struct err e = {0};
    int64_t k;

    *s = m->settings;
    field_f64(b, "temperature", -1e6, 1e6, &s->temp, f);
    k = s->top_k;
    field_i64(b, "top_k", INT32_MIN, INT32_MAX, &k, f);
    s->top_k = (int)k;
    field_f64(b, "top_p", 0, 1e6, &s->top_p, f);
    field_f64(b, "min_p", 0, 1, &s->min_p, f);
    field_f64(b, "repeat_penalty", 0, 1e6, &s->repeat, f);
    field_f64(b, "frequency_penalty", -1e6, 1e6, &s->frequency, f);
    field_f64(b, "presence_penalty", -1e6, 1e6, &s->presence, f);
    k = s->last_n;
    field_i64(b, "repeat_last_n", -1, INT32_MAX, &k, f);
    s->last_n = (int)k;
    read_seed(m, b, s, f);
    refuse_sampler(b, "typical_p", 1, f);
    refuse_sampler(b, "top_n_sigma", -1, f);
    refuse_sampler(b, "xtc_probability", 0, f);
    refuse_sampler(b, "dry_multiplier", 0, f);
    refuse_sampler(b, "dynatemp_range", 0, f);
    refuse_sampler(b, "mirostat", 0, f);
    read_biases(m, r, f);
    if (!f->status && sample_check(s, &e))
        fault_set(f, 400, NULL, "%s", e.msg);
}

/* ---- what ends an answer ---- */

static void add_stop(struct request *r, const char *key, const struct json *v, struct fault *f)
{
    if (v->kind != JSON_STRING || v->n > REQUEST_STOP_BYTES)
        fault_set(f, 400, key, "%s: texts of at most %d bytes are wanted", key, REQUEST_STOP_BYTES);
    else if (r->stops.n == REQUEST_STOPS_MAX)
        fault_set(f, 400, key, "%s: at most %d texts", key, REQUEST_STOPS_MAX);
    else if (v->n) { /* an empty one would end every answer at once: clients send it for none */
        r->stop_text[r->stops.n] = v->text;
        r->stop_len[r->stops.n++] = v->n;
    }
}

static void read_stops(struct request *r, const char *key, struct fault *f)
{
    const struct json *v = field_any(r->body, key);

    r->stops.text = r->stop_text;
    r->stops.len = r->stop_len;
    if (v && v->kind == JSON_ARRAY)
        for (size_t i = 0; i < v->n; i++)
            add_stop(r, key, &v->items[i], f);
    else if (v)
        add_stop(r, key, v, f);
}

static void read_length(const struct served *m, struct request *r, struct fault *f)
{
    static const char *const keys[] = {"max_completion_tokens", "max_tokens", "n_predict", "max_output_tokens"};

    r->max_tokens = m->n_predict;
    for (size_t i = sizeof keys / sizeof *keys; i-- > 0;) {
        int64_t x;

        if (field_i64(r->body, keys[i], -1, INT64_MAX, &x, f)) {
            r->max_tokens = x;
            if (m->n_predict >= 0 && (x < 0 || x > m->n_predict))
                r->max_tokens = m->n_predict; /* -n is the server's limit */
        }
    }
}

/* ---- what the answer shows ---- */

static void read_probs(struct request *r, struct fault *f)
{
    const struct json *v = field_any(r->body, "logprobs");
    int64_t n = 0;
    int on = 0;

    r->n_probs = -1;
    if (r->api == API_COMPLETION) {
        if (field_i64(r->body, "n_probs", 0, JOB_PROBS_MOST, &n, f) && n)
            r->n_probs = (int)n;
        return;
    }
    if (r->api == API_TEXT && v && v->kind == JSON_NUMBER) {
        if (field_i64(r->body, "logprobs", 0, JOB_PROBS_MOST, &n, f))
            r->n_probs = (int)n;
        return;
    }
    field_bool(r->body, "logprobs", &on, f);
    if (field_i64(r->body, "top_logprobs", 0, JOB_PROBS_MOST, &n, f) && n && !on && r->api == API_CHAT)
        fault_set(f, 400, "top_logprobs", "top_logprobs: logprobs must be true");
    if (on || (r->api == API_RESPONSES && n))
        r->n_probs = (int)n;
}

static void read_form(const struct served *m, struct request *r, struct fault *f)
{
    const struct json *b = r->body, *options = NULL;
    int64_t n = 1;

    (void)m;
    field_bool(b, "stream", &r->stream, f);
    if (field_object(b, "stream_options", &options, f))
        field_bool(options, "include_usage", &r->include_usage, f);
    field_bool(b, "timings_per_token", &r->every_timings, f);
    field_bool(b, "return_progress", &r->progress, f);
    field_bool(b, "return_tokens", &r->return_tokens, f);
    if (r->api == API_TEXT)
        field_bool(b, "echo", &r->echo, f);
    r->cache_prompt = 1;
    field_bool(b, "cache_prompt", &r->cache_prompt, f);
    field_bool(b, "ignore_eos", &r->ignore_eos, f);
    field_i64(b, "n", 1, REQUEST_ANSWERS_MAX, &n, f);
    r->n = (uint32_t)n;
    n = 1;
    if (field_i64(b, "best_of", 1, REQUEST_ANSWERS_MAX, &n, f) && (uint32_t)n != r->n)
        fault_set(f, 400, "best_of", "best_of: all answers are given, it must be n or be left out");
    read_probs(r, f);
}

/* ---- a conversation ---- */

/* Tools as templates expect them; a request may forbid calls. */
static const struct json *read_tools(const struct json *chat, int *one_call, struct fault *f)
{
    const struct json *tools = NULL, *choice = field_any(chat, "tool_choice");
    int parallel = 1;

    field_array(chat, "tools", &tools, f);
    field_bool(chat, "parallel_tool_calls", &parallel, f);
    *one_call = !parallel;
    for (size_t i = 0; tools && i < tools->n; i++) {
        const struct json *fn = json_get(&tools->items[i], "function"), *name = json_get(fn, "name");

        if (!json_is(json_get(&tools->items[i], "type"), "function") || !name || name->kind != JSON_STRING || !name->n)
            fault_set(f, 400, "tools", "tools[%zu]: {\"type\":\"function\",\"function\":{\"name\":...}} is wanted", i);
        else if (field_any(fn, "parameters") && json_get(fn, "parameters")->kind != JSON_OBJECT)
            fault_set(f, 400, "tools", "tools[%zu].function.parameters: an object is wanted", i);
    }
    if (!choice || json_is(choice, "auto"))
        return tools && tools->n ? tools : NULL;
    if (json_is(choice, "none"))
        return NULL;
    if (json_is(choice, "required") || choice->kind == JSON_OBJECT)
        fault_set(f, 501, "tool_choice", "tool_choice: calls cannot be forced here; \"auto\" and \"none\" work");
    else
        fault_set(f, 400, "tool_choice", "tool_choice: \"auto\" or \"none\" is wanted");
    return NULL;
}

/* Roles that templates do not know: a developer is who wrote the system message. */
static int as_system(const struct chat_template *t, const struct json *messages, struct json **made, struct fault *f)
{
    static const char role[] = "role", system[] = "system";
    size_t members = 0, k = 0;
    struct json *copy;

    if (messages->kind != JSON_ARRAY || chat_format(t) == CHAT_GPT_OSS)
        return 0;
    for (size_t i = 0; i < messages->n; i++)
        if (json_is(json_get(&messages->items[i], role), "developer"))
            members += messages->items[i].n;
    if (!members)
        return 0;
    copy = malloc((1 + messages->n + members) * sizeof *copy);
    if (!copy)
        return no_memory(f);
    copy[0] = *messages;
    copy[0].items = copy + 1;
    for (size_t i = 0; i < messages->n; i++) {
        const struct json *m = &messages->items[i];
        struct json *to = copy + 1 + messages->n + k;

        copy[1 + i] = *m;
        if (!json_is(json_get(m, role), "developer"))
            continue;
        memcpy(to, m->items, m->n * sizeof *to);
        for (size_t p = 0; p < m->n; p++)
            if (m->items[p].key_n == sizeof role - 1 && !memcmp(m->items[p].key, role, sizeof role - 1)) {
                to[p].text = system;
                to[p].n = sizeof system - 1;
            }
        copy[1 + i].items = to;
        k += m->n;
    }
    *made = copy;
    return 0;
}

static void read_thinking(const struct json *chat, struct chat_request *q, struct fault *f)
{
    const struct json *kwargs = NULL;

    field_bool(chat, "enable_thinking", &q->thinking, f);
    if (field_text(chat, "reasoning_effort", &q->reasoning_effort, f) && !strcmp(q->reasoning_effort, "none")) {
        q->thinking = 0;
        q->reasoning_effort = NULL;
    }
    field_bool(chat, "keep_reasoning", &q->keep_reasoning, f);
    if (field_object(chat, "chat_template_kwargs", &kwargs, f))
        q->kwargs = kwargs;
}

int request_render(const struct served *m, const struct json *body, int no_generation_prompt, struct chat_prompt *out,
                   struct fault *f)
{
    struct chat_request q = {.thinking = m->thinking, .keep_reasoning = m->keep_reasoning, .kwargs = m->kwargs,
                             .reasoning_effort = m->reasoning_effort, .no_generation_prompt = no_generation_prompt};
    const struct json *messages = NULL, *format = NULL;
    struct json *made = NULL;
    struct err e = {0};
    time_t now = time(NULL);
    struct tm local;
    int one_call, rc;

    if (!m->template)
        return fault_set(f, 400, "messages",
                         "this model has no chat template: start the server with --chat-template FILE, or "
                         "use /v1/completions");
    if (!field_array(body, "messages", &messages, f) || !messages->n)
        return fault_set(f, 400, "messages", "messages: an array of at least one message is wanted");
    q.tools = read_tools(body, &one_call, f);
    read_thinking(body, &q, f);
    field_object(body, "response_format", &format, f);
    q.response_format = format;
    if (localtime_r(&now, &local))
        q.now = &local;
    if (f->status || as_system(m->template, messages, &made, f))
        return f->status;
    q.messages = made ? made : messages;
    rc = chat_render(m->template, &q, out, NULL, &e);
    free(made);
    if (rc)
        return fault_set(f, rc == -ENOMEM ? 500 : 400, "messages", "%s", e.msg);
    return 0;
}

static int new_prompts(struct request *r, size_t n, struct fault *f)
{
    r->prompt = calloc(n, sizeof *r->prompt);
    if (!r->prompt)
        return no_memory(f);
    r->n_prompts = n;
    return 0;
}

static void read_chat(const struct served *m, struct request *r, struct fault *f)
{
    struct chat_prompt p = {.start = CHAT_AUTO};
    const char *format = "auto";
    struct err e = {0};

    if (request_render(m, r->chat, 0, &p, f))
        return;
    r->tools = read_tools(r->chat, &r->one_call, f);
    r->start = p.start;
    r->split_reasoning = 1;
    if (field_text(r->chat, "reasoning_format", &format, f)) {
        r->split_reasoning = strcmp(format, "none") != 0;
        if (strcmp(format, "none") && strcmp(format, "auto") && strcmp(format, "deepseek"))
            fault_set(f, 400, "reasoning_format", "reasoning_format: auto, deepseek or none is wanted");
    }
    if (!f->status && !new_prompts(r, 1, f) && chat_tokenize(m->tok, &p.text, m->allow_control, &r->prompt->ids, &e))
        fault_set(f, 400, "messages", "%s", e.msg);
    if (!f->status && !r->prompt->ids.n)
        fault_set(f, 400, "messages", "messages: the template makes an empty prompt of these");
    chat_prompt_free(&p);
}

/* ---- raw prompts ---- */

static int add_id(struct token_list *l, const struct served *m, const struct json *v, struct fault *f)
{
    uint64_t id;

    if (json_u64(v, &id) || id >= m->n_vocab)
        return fault_set(f, 400, "prompt", "prompt: %.40s is no token of the vocabulary of %u", v->text, m->n_vocab);
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 64;
        uint32_t *more = realloc(l->ids, cap * sizeof *more);

        if (!more)
            return no_memory(f);
        l->ids = more;
        l->cap = cap;
    }
    l->ids[l->n++] = (uint32_t)id;
    return 0;
}

static int is_ids(const struct json *v)
{
    return v->kind == JSON_ARRAY && v->n && v->items[0].kind == JSON_NUMBER;
}

/* A text, ids, or ids and texts one after the other. */
static void read_prompt(const struct served *m, const struct json *v, struct request *r, struct request_prompt *p,
                        struct fault *f)
{
    size_t n = v->kind == JSON_ARRAY ? v->n : 1;
    struct err e = {0};

    for (size_t i = 0; i < n && !f->status; i++) {
        const struct json *x = v->kind == JSON_ARRAY ? &v->items[i] : v;

        if (x->kind == JSON_NUMBER)
            add_id(&p->ids, m, x, f);
        else if (x->kind != JSON_STRING)
            fault_set(f, 400, "prompt", "prompt: a text, token ids, or an array of such is wanted");
        else if (tokenize(m->tok, x->text, x->n, i == 0, 1, &p->ids, &e))
            fault_set(f, e.code == -ENOMEM ? 500 : 400, "prompt", "prompt: %s", e.msg);
    }
    if (!f->status && !p->ids.n)
        fault_set(f, 400, "prompt", "prompt: it is empty, and this model has no BOS token to begin with");
    if (f->status || !r->echo)
        return;
    if (v->kind != JSON_STRING) {
        fault_set(f, 400, "echo", "echo: works for prompts that are texts");
    } else if (r->n_probs >= 0) {
        fault_set(f, 400, "echo", "echo: there are no probabilities of a prompt's tokens; without logprobs it works");
    } else if (!(p->text = malloc(v->n + 1))) {
        no_memory(f);
    } else {
        memcpy(p->text, v->text, v->n + 1);
        p->n = v->n;
    }
}

static void read_prompts(const struct served *m, struct request *r, struct fault *f)
{
    const struct json *v = field_any(r->body, "prompt");
    int several;

    if (!v || (v->kind != JSON_STRING && v->kind != JSON_ARRAY) || (v->kind == JSON_ARRAY && !v->n)) {
        fault_set(f, 400, "prompt", "prompt: a text, token ids, or an array of such is wanted");
        return;
    }
    /* [1, "a"] is one prompt; ["a", "b"] and [[1, 2], "b"] are several */
    several = v->kind == JSON_ARRAY && !is_ids(v);
    for (size_t i = 0; several && i < v->n; i++)
        if (v->items[i].kind == JSON_NUMBER)
            several = 0;
    if (several && v->n > REQUEST_ANSWERS_MAX) {
        fault_set(f, 400, "prompt", "prompt: at most %d prompts at a time", REQUEST_ANSWERS_MAX);
        return;
    }
    if (new_prompts(r, several ? v->n : 1, f))
        return;
    for (size_t i = 0; i < r->n_prompts && !f->status; i++)
        read_prompt(m, several ? &v->items[i] : v, r, &r->prompt[i], f);
    if (r->api == API_TEXT && field_any(r->body, "suffix") && !json_is(json_get(r->body, "suffix"), ""))
        fault_set(f, 400, "suffix", "suffix: filling in is not supported");
}

/* ---- grammars ---- */

/* The schema that an answer is to follow, wherever the request says it. any: any object. */
static const struct json *wanted_schema(const struct json *chat, int *any, struct fault *f)
{
    const struct json *format = NULL, *type, *schema = field_any(chat, "json_schema");

    *any = 0;
    if (!field_object(chat, "response_format", &format, f))
        return schema;
    type = json_get(format, "type");
    if (json_is(type, "text"))
        return schema;
    if (json_is(type, "json_object")) {
        schema = field_any(format, "schema");
        *any = !schema;
    } else if (json_is(type, "json_schema")) {
        const struct json *inner = field_any(format, "json_schema");

        schema = field_any(inner ? inner : format, "schema");
        if (!schema)
            fault_set(f, 400, "response_format", "response_format.json_schema.schema: a schema is wanted");
    } else {
        fault_set(f, 400, "response_format", "response_format.type: text, json_object or json_schema is wanted");
    }
    return schema;
}

static void read_grammar(const struct served *m, struct request *r, struct fault *f)
{
    const struct json *chat = r->chat ? r->chat : r->body;
    struct grammar_source s = {0};
    const char *text = NULL;
    struct err e = {0};

    s.schema = wanted_schema(chat, &s.any_object, f);
    if (field_text(r->body, "grammar", &text, f) && *text) {
        s.gbnf = text;
        s.n = strlen(text);
    }
    if (f->status || (!s.gbnf && !s.schema && !s.any_object))
        return;
    if (s.gbnf && (s.schema || s.any_object)) {
        fault_set(f, 400, "grammar", "grammar and a JSON schema exclude each other");
        return;
    }
    if (r->tools) {
        fault_set(f, 400, s.gbnf ? "grammar" : "response_format",
                  "a grammar or a schema beside tools is not supported: a call is no text of it");
        return;
    }
    if (!m->grammars) {
        fault_set(f, 501, s.gbnf ? "grammar" : "response_format",
                  "grammars and schemas are not supported by this server");
        return;
    }
    if (r->chat && (r->start == CHAT_REASONING || (r->start == CHAT_AUTO && m->thinks))) {
        s.think_end = "</think>";
        s.think_begin = r->start == CHAT_REASONING ? NULL : "<think>";
    }
    if (grammar_keep_open(m->grammars, &s, &r->grammar, &e))
        fault_set(f, e.code == -ENOMEM ? 500 : 400, s.gbnf ? "grammar" : "response_format", "%s", e.msg);
}

/* ---- all of it ---- */

static void read_body(const struct served *m, struct request *r, struct fault *f)
{
    if (r->api == API_MESSAGES && request_from_messages(r->body, 1, &r->chat_doc, f))
        return;
    if (r->api == API_RESPONSES && request_from_responses(r->body, &r->chat_doc, f))
        return;
    if (r->chat_doc)
        r->chat = json_root(r->chat_doc);
    else if (r->api == API_CHAT)
        r->chat = r->body;
    read_form(m, r, f);
    read_length(m, r, f);
    read_stops(r, r->api == API_MESSAGES ? "stop_sequences" : "stop", f);
    read_sampling(m, r, f);
    if (f->status)
        return;
    if (r->chat)
        read_chat(m, r, f);
    else
        read_prompts(m, r, f);
    if (!f->status && r->n * r->n_prompts > REQUEST_ANSWERS_MAX)
        fault_set(f, 400, "n", "n: at most %d answers at a time", REQUEST_ANSWERS_MAX);
    if (!f->status && r->n > 1 && (r->api == API_RESPONSES || r->api == API_MESSAGES))
        fault_set(f, 400, "n", "n: this API has one answer");
    if (!f->status)
        read_grammar(m, r, f);
}

int request_read(const struct served *m, enum api_kind api, const char *text, size_t n, struct request *out,
                 struct fault *f)
{
    static const struct json_limits limits = {.depth = REQUEST_DEPTH_MAX, .values = REQUEST_VALUES_MAX};
    struct err e = {0};

    memset(out, 0, sizeof *out);
    out->api = api;
    out->n_probs = -1;
    if (json_parse("the body", text, n, &limits, &out->doc, &e))
        return fault_set(f, e.code == -ENOMEM ? 500 : e.code == -E2BIG ? 413 : 400, NULL, "%s", e.msg);
    out->body = json_root(out->doc);
    if (out->body->kind != JSON_OBJECT)
        return fault_set(f, 400, NULL, "the body: an object is wanted");
    read_body(m, out, f);
    return f->status;
}

void request_free(struct request *r)
{
    for (size_t i = 0; i < r->n_prompts; i++) {
        free(r->prompt[i].ids.ids);
        free(r->prompt[i].text);
    }
    free(r->prompt);
    free(r->bias);
    grammar_close(r->grammar);
    json_free(r->chat_doc);
    json_free(r->doc);
    memset(r, 0, sizeof *r);
}
