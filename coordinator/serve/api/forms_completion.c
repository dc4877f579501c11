/* /completion: llama.cpp's own. */
#include <math.h>

#include "coordinator/serve/api/call.h"
#include "coordinator/serve/api/put.h"

static void put_ids(struct json_out *o, const struct choice *h, size_t from, size_t to)
{
    put_array(o, "tokens");
    for (size_t i = from; i < to; i++)
        json_put_u64(o, h->turn.token[i].t.id);
    json_close_array(o);
}

static void put_probs(struct json_out *o, const struct call *c, const struct choice *h, size_t from, size_t to)
{
    if (c->r.n_probs < 0)
        return;
    json_key(o, "completion_probabilities");
    put_chat_probs(o, c, h, from, to);
}

static void put_settings(struct json_out *o, const struct call *c)
{
    const struct sample_settings *s = &c->r.settings;

    put_object(o, "generation_settings");
    put_u64(o, "seed", s->seed);
    put_f64(o, "temperature", s->temp);
    put_i64(o, "top_k", s->top_k);
    put_f64(o, "top_p", s->top_p);
    put_f64(o, "min_p", s->min_p);
    put_f64(o, "repeat_penalty", s->repeat);
    put_i64(o, "repeat_last_n", s->last_n);
    put_f64(o, "presence_penalty", s->presence);
    put_f64(o, "frequency_penalty", s->frequency);
    put_i64(o, "n_predict", c->r.max_tokens);
    put_bool(o, "stream", c->r.stream);
    put_bool(o, "ignore_eos", c->r.ignore_eos);
    put_i64(o, "n_probs", c->r.n_probs < 0 ? 0 : c->r.n_probs);
    put_array(o, "stop");
    for (size_t i = 0; i < c->r.stops.n; i++)
        json_put_strn(o, c->r.stop_text[i], c->r.stop_len[i]);
    json_close_array(o);
    json_close_object(o);
}

static void put_final(struct json_out *o, const struct call *c, const struct choice *h)
{
    static const char *const type[] = {"none", "eos", "word", "limit", "eos"};

    put_i64(o, "id_slot", h->status.slot);
    put_bool(o, "stop", 1);
    put_text(o, "model", api_served(c->api)->name);
    put_u64(o, "tokens_predicted", h->turn.n_tokens);
    put_u64(o, "tokens_evaluated", c->r.prompt[h->prompt].ids.n);
    put_u64(o, "tokens_cached", h->status.timings.cache_n);
    put_settings(o, c);
    put_bool(o, "truncated", h->status.reason == JOB_CONTEXT);
    put_text(o, "stop_type", type[h->finish]);
    json_key(o, "stopping_word");
    if (h->turn.word >= 0)
        json_put_strn(o, c->r.stop_text[h->turn.word], c->r.stop_len[h->turn.word]);
    else
        json_put_str(o, "");
    put_timings(o, "timings", h);
}

static void begin(struct call *c)
{
    (void)c; /* nothing comes before the text */
}

static void delta(struct call *c, struct choice *h)
{
    struct json_out *o = event_begin();
    size_t to = turn_certain(&h->turn, 0);

    if (!o)
        return;
    json_open_object(o);
    put_u64(o, "index", (uint64_t)(h - c->choice));
    put_bytes(o, "content", h->turn.text + h->text, h->turn.given - h->text);
    put_ids(o, h, h->tokens, to);
    put_bool(o, "stop", 0);
    put_i64(o, "id_slot", h->status.slot);
    put_u64(o, "tokens_predicted", h->turn.n_tokens);
    put_u64(o, "tokens_evaluated", c->r.prompt[h->prompt].ids.n);
    put_probs(o, c, h, h->tokens, to);
    if (c->r.every_timings)
        put_timings(o, "timings", h);
    json_close_object(o);
    h->text = h->turn.given;
    h->tokens = to;
    event_send(c, NULL, o);
}

static void finished(struct call *c, struct choice *h)
{
    struct json_out *o = event_begin();

    if (!o)
        return;
    json_open_object(o);
    put_u64(o, "index", (uint64_t)(h - c->choice));
    put_text(o, "content", "");
    put_ids(o, h, h->tokens, h->turn.n_kept);
    put_probs(o, c, h, h->tokens, h->turn.n_kept);
    put_final(o, c, h);
    json_close_object(o);
    event_send(c, NULL, o);
}

static void end(struct call *c)
{
    (void)c; /* the last object says "stop": true */
}

static void whole(struct call *c, struct json_out *o)
{
    if (c->n_choices > 1)
        json_open_array(o);
    for (size_t i = 0; i < c->n_choices; i++) {
        const struct choice *h = &c->choice[i];

        json_open_object(o);
        put_u64(o, "index", i);
        put_bytes(o, "content", h->turn.text ? h->turn.text : "", h->turn.n);
        put_ids(o, h, 0, c->r.return_tokens ? h->turn.n_kept : 0);
        put_probs(o, c, h, 0, h->turn.n_kept);
        put_final(o, c, h);
        json_close_object(o);
    }
    if (c->n_choices > 1)
        json_close_array(o);
}

const struct forms forms_completion = {"cmpl-", begin, delta, finished, end, whole, FAULT_OPENAI};
