/* /v1/completions: raw text. */
#include <math.h>

#include "coordinator/serve/api/call.h"
#include "coordinator/serve/api/put.h"

static void put_head(struct json_out *o, const struct call *c)
{
    put_text(o, "id", c->id);
    put_text(o, "object", "text_completion");
    put_i64(o, "created", c->created);
    put_text(o, "model", api_served(c->api)->name);
    put_text(o, "system_fingerprint", api_fingerprint(c->api));
}

static double number(float logprob)
{
    return isfinite(logprob) ? logprob : -9999;
}

/* The older form: four lists side by side. */
static void put_probs(struct json_out *o, const struct call *c, const struct choice *h, size_t from, size_t to)
{
    const struct tokenizer *t = api_served(c->api)->tok;
    const struct turn_token *k = h->turn.token;

    json_key(o, "logprobs");
    if (c->r.n_probs < 0) {
        json_put_null(o);
        return;
    }
    json_open_object(o);
    put_array(o, "tokens");
    for (size_t i = from; i < to; i++)
        put_token_text(o, NULL, t, k[i].t.id);
    json_close_array(o);
    put_array(o, "token_logprobs");
    for (size_t i = from; i < to; i++)
        json_put_f64(o, number(k[i].t.logprob));
    json_close_array(o);
    put_array(o, "top_logprobs");
    for (size_t i = from; i < to; i++) {
        json_open_object(o);
        for (uint32_t j = 0; j < k[i].t.n_top && (int)j < c->r.n_probs; j++) {
            put_token_text(o, NULL, t, k[i].t.top[j].id);
            json_put_f64(o, number(k[i].t.top[j].logprob));
        }
        json_close_object(o);
    }
    json_close_array(o);
    put_array(o, "text_offset");
    for (size_t i = from; i < to; i++)
        json_put_u64(o, k[i].at);
    json_close_array(o);
    json_close_object(o);
}

static void put_end(struct json_out *o, const char *finish)
{
    json_key(o, "finish_reason");
    if (finish)
        json_put_str(o, finish);
    else
        json_put_null(o);
}

static struct json_out *chunk(struct call *c, struct choice *h, const char *text, size_t n, const char *finish)
{
    struct json_out *o = event_begin();
    size_t to = turn_certain(&h->turn, finish != NULL);

    if (!o)
        return NULL;
    json_open_object(o);
    put_head(o, c);
    put_array(o, "choices");
    json_open_object(o);
    put_u64(o, "index", (uint64_t)(h - c->choice));
    put_bytes(o, "text", text, n);
    put_probs(o, c, h, h->tokens, to);
    h->tokens = to;
    put_end(o, finish);
    json_close_object(o);
    json_close_array(o);
    if (finish || c->r.every_timings)
        put_timings(o, "timings", h);
    json_close_object(o);
    return o;
}

static void begin(struct call *c)
{
    for (size_t i = 0; c->r.echo && i < c->n_choices; i++) {
        const struct request_prompt *p = &c->r.prompt[c->choice[i].prompt];

        event_send(c, NULL, chunk(c, &c->choice[i], p->text, p->n, NULL));
    }
}

static void delta(struct call *c, struct choice *h)
{
    size_t from = h->text;

    h->text = h->turn.given;
    event_send(c, NULL, chunk(c, h, h->turn.text + from, h->text - from, NULL));
}

static void finished(struct call *c, struct choice *h)
{
    event_send(c, NULL, chunk(c, h, "", 0, finish_openai(h->finish)));
}

static void end(struct call *c)
{
    static const char done[] = "data: [DONE]\n\n";
    struct json_out *o = c->r.include_usage ? event_begin() : NULL;

    if (o) {
        json_open_object(o);
        put_head(o, c);
        put_array(o, "choices");
        json_close_array(o);
        put_usage_openai(o, c);
        json_close_object(o);
        event_send(c, NULL, o);
    }
    exchange_send(c->x, done, sizeof done - 1);
}

static void whole(struct call *c, struct json_out *o)
{
    json_open_object(o);
    put_head(o, c);
    put_array(o, "choices");
    for (size_t i = 0; i < c->n_choices; i++) {
        const struct choice *h = &c->choice[i];
        const struct request_prompt *p = &c->r.prompt[h->prompt];

        json_open_object(o);
        put_u64(o, "index", i);
        json_key(o, "text");
        if (c->r.echo)
            put_two(o, p->text, p->n, h->turn.text, h->turn.n);
        else
            json_put_strn(o, h->turn.text ? h->turn.text : "", h->turn.n);
        put_probs(o, c, h, 0, h->turn.n_kept);
        put_end(o, finish_openai(h->finish));
        json_close_object(o);
    }
    json_close_array(o);
    put_usage_openai(o, c);
    put_timings(o, "timings", &c->choice[0]);
    json_close_object(o);
}

const struct forms forms_text = {"cmpl-", begin, delta, finished, end, whole, FAULT_OPENAI};
