/* What needs no tokens: health, the model, settings, slots, numbers, and text to ids and back. */
#include <stdlib.h>
#include <string.h>

#include "coordinator/model/model.h"
#include "coordinator/model/utf8.h"
#include "coordinator/serve/api/call.h"
#include "coordinator/serve/api/fields.h"
#include "coordinator/serve/api/put.h"

enum { SLOTS_MOST = 256, HEALTH_SILENT_S = 600 }; /* a pass of a large model from the disk takes minutes */

static int is_ready(struct exchange *x, const struct api *a)
{
    struct fault f = {0};

    if (atomic_load_explicit(&a->ready, memory_order_acquire))
        return 1;
    fault_set(&f, 503, NULL, "Loading model");
    reply_fault(x, &f);
    return 0;
}

static void reply_json(struct exchange *x, struct json_out *o)
{
    struct fault f = {0};
    struct err e = {0};
    const char *text;
    size_t n;

    if (o && !json_text(o, &text, &n, &e)) {
        exchange_reply(x, 200, "application/json; charset=utf-8", text, n);
    } else {
        fault_set(&f, 500, NULL, "no memory for the answer");
        reply_fault(x, &f);
    }
    json_out_free(o);
}

/* ---- health ---- */

/* Slots in work, and no step has ended for so long: something hangs, whoever watches should know. */
static double silent(const struct api *a)
{
    struct jobs_stats s;
    struct timespec now;

    jobs_stats(a->jobs, &s, NULL, 0);
    clock_gettime(CLOCK_MONOTONIC, &now);
    return s.busy && a->news.tv_sec ? (double)(now.tv_sec - a->news.tv_sec) : 0;
}

static void on_health(struct exchange *x, void *arg)
{
    static const char ok[] = "{\"status\":\"ok\"}";
    const struct api *a = arg;
    struct fault f = {0};

    if (!is_ready(x, a))
        return;
    if (silent(a) > HEALTH_SILENT_S) {
        fault_set(&f, 503, NULL, "no step has ended for %.0f s", silent(a));
        reply_fault(x, &f);
        return;
    }
    exchange_reply(x, 200, "application/json; charset=utf-8", ok, sizeof ok - 1);
}

/* ---- the model ---- */

static void put_meta(struct json_out *o, const struct api *a)
{
    const struct api_facts *f = &a->facts;

    put_object(o, "meta");
    put_u64(o, "vocab_type", 2);
    put_u64(o, "n_vocab", a->served->n_vocab);
    put_u64(o, "n_ctx", a->served->n_ctx);
    put_u64(o, "n_ctx_train", f->n_ctx_train);
    put_u64(o, "n_params", f->n_params);
    put_u64(o, "size", f->bytes);
    json_close_object(o);
}

static void put_model(struct json_out *o, const struct api *a)
{
    json_open_object(o);
    put_text(o, "id", a->served->name);
    put_text(o, "object", "model");
    put_i64(o, "created", a->started);
    put_text(o, "owned_by", "conclave");
    put_meta(o, a);
    json_close_object(o);
}

/* /v1/models/NAME: the one that is served, whatever it is called; its name is in the answer. */
static void on_model(struct exchange *x, void *arg)
{
    struct api *a = arg;
    struct json_out *o;

    if (!is_ready(x, a))
        return;
    if ((o = json_out_new(0)))
        put_model(o, a);
    reply_json(x, o);
}

static void on_models(struct exchange *x, void *arg)
{
    struct api *a = arg;
    struct json_out *o;

    if (!is_ready(x, a))
        return;
    if ((o = json_out_new(0))) {
        json_open_object(o);
        put_text(o, "object", "list");
        put_array(o, "data");
        put_model(o, a);
        json_close_array(o);
        json_close_object(o);
    }
    reply_json(x, o);
}

static void put_defaults(struct json_out *o, const struct api *a)
{
    const struct sample_settings *s = &a->served->settings;

    put_object(o, "default_generation_settings");
    put_u64(o, "n_ctx", a->served->n_ctx);
    put_object(o, "params");
    put_i64(o, "n_predict", a->served->n_predict);
    put_f64(o, "temperature", s->temp);
    put_i64(o, "top_k", s->top_k);
    put_f64(o, "top_p", s->top_p);
    put_f64(o, "min_p", s->min_p);
    put_f64(o, "repeat_penalty", s->repeat);
    put_i64(o, "repeat_last_n", s->last_n);
    put_f64(o, "presence_penalty", s->presence);
    put_f64(o, "frequency_penalty", s->frequency);
    if (a->served->fixed_seed)
        put_u64(o, "seed", s->seed);
    else
        put_i64(o, "seed", -1);
    json_close_object(o);
    json_close_object(o);
}

static void put_special(struct json_out *o, const char *key, const struct tokenizer *t, int64_t id)
{
    if (id >= 0)
        put_token_text(o, key, t, (uint32_t)id);
    else
        put_text(o, key, "");
}

static void on_props(struct exchange *x, void *arg)
{
    struct api *a = arg;
    struct jobs_stats s;
    struct json_out *o;

    if (!is_ready(x, a))
        return;
    jobs_stats(a->jobs, &s, NULL, 0);
    if ((o = json_out_new(0))) {
        json_open_object(o);
        put_defaults(o, a);
        put_u64(o, "total_slots", s.n_slots);
        put_text(o, "model_alias", a->served->name);
        put_text(o, "model_path", a->served->name); /* where the file lies is nobody's business */
        put_text(o, "chat_template", a->facts.template_source ? a->facts.template_source : "");
        put_special(o, "bos_token", a->served->tok, tokenizer_bos(a->served->tok));
        put_special(o, "eos_token", a->served->tok, tokenizer_eos(a->served->tok));
        put_object(o, "modalities");
        put_bool(o, "vision", 0);
        put_bool(o, "audio", 0);
        json_close_object(o);
        put_text(o, "build_info", a->fingerprint);
        put_bool(o, "is_sleeping", 0);
        json_close_object(o);
    }
    reply_json(x, o);
}

static void on_slots(struct exchange *x, void *arg)
{
    static const char *const states[] = {"waiting", "prompt", "answer", "idle"};
    struct api *a = arg;
    struct jobs_slot slot[SLOTS_MOST] = {{0}};
    struct jobs_stats s;
    struct json_out *o;

    if (!is_ready(x, a))
        return;
    jobs_stats(a->jobs, &s, slot, SLOTS_MOST);
    if ((o = json_out_new(0))) {
        json_open_array(o);
        for (uint32_t i = 0; i < s.n_slots && i < SLOTS_MOST; i++) {
            json_open_object(o);
            put_u64(o, "id", i);
            put_u64(o, "n_ctx", s.n_ctx);
            put_bool(o, "is_processing", slot[i].job != 0);
            put_i64(o, "id_task", slot[i].job ? (int64_t)slot[i].job : -1);
            put_text(o, "state", slot[i].job ? states[slot[i].state] : "idle");
            put_u64(o, "n_past", slot[i].n_past);
            put_u64(o, "n_prompt_tokens", slot[i].n_prompt);
            put_u64(o, "n_decoded", slot[i].n_tokens);
            json_close_object(o);
        }
        json_close_array(o);
    }
    reply_json(x, o);
}

static void on_not_supported(struct exchange *x, void *arg)
{
    struct fault f = {0};

    (void)arg;
    fault_set(&f, 501, NULL, "this is not supported");
    reply_fault(x, &f);
}

int api_info_routes(struct api *a, struct err *e)
{
    static const char *const later[] = {
        "/v1/embeddings", "/embeddings",   "/embedding", "/infill",        "/v1/rerank",
        "/rerank",        "/reranking",    "/slots/*",   "/lora-adapters", "/v1/audio/transcriptions",
        "/models/load",   "/models/unload"};
    struct http *h = a->http;
    int rc = 0;

    if ((rc = http_route(h, HTTP_GET, "/health", 1, on_health, a, e)) ||
        (rc = http_route(h, HTTP_GET, "/v1/health", 1, on_health, a, e)) ||
        (rc = http_route(h, HTTP_GET, "/v1/models", 0, on_models, a, e)) ||
        (rc = http_route(h, HTTP_GET, "/v1/models/*", 0, on_model, a, e)) ||
        (rc = http_route(h, HTTP_GET, "/models", 0, on_models, a, e)) ||
        (a->o.props && (rc = http_route(h, HTTP_GET, "/props", 0, on_props, a, e))) ||
        (a->o.slots && (rc = http_route(h, HTTP_GET, "/slots", 0, on_slots, a, e))) ||
        (a->o.metrics && (rc = http_route(h, HTTP_GET, "/metrics", 0, on_metrics, a, e))))
        return rc;
    for (size_t i = 0; i < sizeof later / sizeof *later && !rc; i++)
        rc = http_route(h, HTTP_POST, later[i], 0, on_not_supported, a, e);
    return rc;
}

/* ---- work of the reading thread ---- */

static void keep_reply(struct call *c, struct json_out *o)
{
    struct err e = {0};
    const char *text;
    size_t n;

    if (o && !json_text(o, &text, &n, &e) && (c->reply = malloc(n + 1))) {
        memcpy(c->reply, text, n);
        c->reply_n = n;
    } else {
        fault_set(&c->fault, 500, NULL, "no memory for the answer");
    }
    json_out_free(o);
}

static struct json_doc *parse(const char *body, size_t n, struct fault *f)
{
    static const struct json_limits limits = {.depth = REQUEST_DEPTH_MAX, .values = REQUEST_VALUES_MAX};
    struct json_doc *d = NULL;
    struct err e = {0};

    if (json_parse("the body", body, n, &limits, &d, &e))
        fault_set(f, e.code == -ENOMEM ? 500 : 400, NULL, "%s", e.msg);
    else if (json_root(d)->kind != JSON_OBJECT)
        fault_set(f, 400, NULL, "the body: an object is wanted");
    return d;
}

static void put_piece(struct json_out *o, const struct tokenizer *t, uint32_t id)
{
    const char *s;
    size_t n, len;

    token_piece(t, id, 1, &s, &n);
    for (size_t i = 0; i < n; i += len)
        if (utf8_next(s + i, n - i, &len) != UTF8_OK) {
            put_token_bytes(o, "piece", t, id);
            return;
        }
    put_bytes(o, "piece", s, n);
}

void task_tokenize(struct api *a, const char *body, size_t n, struct call *c)
{
    struct json_doc *d = parse(body, n, &c->fault);
    const struct json *j = d ? json_root(d) : NULL, *content = field_any(j, "content");
    int add_special = 0, parse_special = 1, with_pieces = 0;
    struct token_list ids = {0};
    struct json_out *o = NULL;
    struct err e = {0};

    field_bool(j, "add_special", &add_special, &c->fault);
    field_bool(j, "parse_special", &parse_special, &c->fault);
    field_bool(j, "with_pieces", &with_pieces, &c->fault);
    if (!c->fault.status && (!content || content->kind != JSON_STRING))
        fault_set(&c->fault, 400, "content", "content: a text is wanted");
    if (!c->fault.status && tokenize(a->served->tok, content->text, content->n, add_special, parse_special, &ids, &e))
        fault_set(&c->fault, 400, "content", "content: %s", e.msg);
    if (!c->fault.status && (o = json_out_new(0))) {
        json_open_object(o);
        put_array(o, "tokens");
        for (size_t i = 0; i < ids.n; i++) {
            if (!with_pieces) {
                json_put_u64(o, ids.ids[i]);
                continue;
            }
            json_open_object(o);
            put_u64(o, "id", ids.ids[i]);
            put_piece(o, a->served->tok, ids.ids[i]);
            json_close_object(o);
        }
        json_close_array(o);
        json_close_object(o);
    }
    if (!c->fault.status)
        keep_reply(c, o);
    free(ids.ids);
    json_free(d);
}

void task_detokenize(struct api *a, const char *body, size_t n, struct call *c)
{
    struct json_doc *d = parse(body, n, &c->fault);
    const struct json *tokens = NULL;
    struct detok *detok = malloc(sizeof *detok);
    char *text = NULL;
    size_t size = 0, cap = 0, got;
    const char *s;

    if (d && !field_array(json_root(d), "tokens", &tokens, &c->fault))
        fault_set(&c->fault, 400, "tokens", "tokens: an array of token ids is wanted");
    if (!detok)
        fault_set(&c->fault, 500, NULL, "no memory");
    else
        detok_init(detok, a->served->tok, 1, 1);
    for (size_t i = 0; !c->fault.status && i <= tokens->n; i++) {
        uint64_t id = 0;

        if (i < tokens->n && (json_u64(&tokens->items[i], &id) || id >= a->served->n_vocab)) {
            fault_set(&c->fault, 400, "tokens", "tokens[%zu]: no token of the vocabulary of %u", i, a->served->n_vocab);
            break;
        }
        if (i < tokens->n)
            detok_push(detok, (uint32_t)id, &s, &got);
        else
            detok_flush(detok, &s, &got);
        if (size + got > cap) {
            char *more = realloc(text, cap = 2 * (size + got) + 64);

            if (!more) {
                fault_set(&c->fault, 500, NULL, "no memory");
                break;
            }
            text = more;
        }
        if (got)
            memcpy(text + size, s, got);
        size += got;
    }
    if (!c->fault.status) {
        struct json_out *o = json_out_new(0);

        if (o) {
            json_open_object(o);
            put_bytes(o, "content", text ? text : "", size);
            json_close_object(o);
        }
        keep_reply(c, o);
    }
    free(text);
    free(detok);
    json_free(d);
}

void task_apply_template(struct api *a, const char *body, size_t n, struct call *c)
{
    struct json_doc *d = parse(body, n, &c->fault);
    struct chat_prompt p = {.start = CHAT_AUTO};
    int generation = 1;

    if (d)
        field_bool(json_root(d), "add_generation_prompt", &generation, &c->fault);
    if (!c->fault.status && !request_render(a->served, json_root(d), !generation, &p, &c->fault)) {
        struct json_out *o = json_out_new(0);

        if (o) {
            json_open_object(o);
            put_bytes(o, "prompt", p.text.s ? p.text.s : "", p.text.n);
            json_close_object(o);
        }
        keep_reply(c, o);
    }
    chat_prompt_free(&p);
    json_free(d);
}

/* Anthropic's: how many tokens a request's prompt has. */
void task_count_tokens(struct api *a, const char *body, size_t n, struct call *c)
{
    struct json_doc *d = parse(body, n, &c->fault), *chat = NULL;
    struct chat_prompt p = {.start = CHAT_AUTO};
    struct token_list ids = {0};
    struct err e = {0};

    if (!c->fault.status && !request_from_messages(json_root(d), 0, &chat, &c->fault) &&
        !request_render(a->served, json_root(chat), 0, &p, &c->fault)) {
        struct json_out *o = NULL;

        if (chat_tokenize(a->served->tok, &p.text, a->served->allow_control, &ids, &e))
            fault_set(&c->fault, 400, "messages", "%s", e.msg);
        else if ((o = json_out_new(0))) {
            json_open_object(o);
            put_u64(o, "input_tokens", ids.n);
            json_close_object(o);
        }
        if (!c->fault.status)
            keep_reply(c, o);
    }
    free(ids.ids);
    chat_prompt_free(&p);
    json_free(chat);
    json_free(d);
}
