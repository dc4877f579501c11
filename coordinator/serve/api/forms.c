/* What the APIs' answers have in common. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "coordinator/model/utf8.h"
#include "coordinator/serve/api/call.h"
#include "coordinator/serve/api/put.h"

struct json_out *event_begin(void)
{
    return json_out_new(0);
}

void event_send(struct call *c, const char *name, struct json_out *o)
{
    static const char data[] = "data: ", end[] = "\n\n";
    const char *text;
    char head[64];
    struct err e = {0};
    size_t n;

    if (o && !json_text(o, &text, &n, &e)) {
        if (name)
            exchange_send_more(c->x, head, (size_t)snprintf(head, sizeof head, "event: %s\n", name));
        exchange_send_more(c->x, data, sizeof data - 1);
        exchange_send_more(c->x, text, n);
        exchange_send(c->x, end, sizeof end - 1);
        c->sent = 1;
    }
    json_out_free(o);
}

int choice_has_more(const struct choice *h)
{
    const struct turn *t = &h->turn;
    size_t thought, content;

    if (!t->answer)
        return t->given > h->text;
    answer_reasoning(t->answer, &thought);
    answer_content(t->answer, &content);
    return thought > h->thought || content > h->content || answer_n_calls(t->answer) > h->calls;
}

const char *finish_openai(enum finish f)
{
    return f == FINISH_TOOLS ? "tool_calls" : f == FINISH_LENGTH ? "length" : "stop";
}

size_t call_prompt_tokens(const struct call *c)
{
    size_t n = 0;

    for (size_t i = 0; i < c->r.n_prompts; i++)
        n += c->r.prompt[i].ids.n;
    return n;
}

size_t call_answer_tokens(const struct call *c)
{
    size_t n = 0;

    for (size_t i = 0; i < c->n_choices; i++)
        n += c->choice[i].turn.n_tokens;
    return n;
}

size_t call_cached_tokens(const struct call *c)
{
    size_t n = 0;

    for (size_t i = 0; i < c->n_choices; i += c->r.n) /* of several answers the first computed the prompt */
        n += c->choice[i].status.timings.cache_n;
    return n;
}

void put_usage_openai(struct json_out *o, const struct call *c)
{
    put_object(o, "usage");
    put_u64(o, "prompt_tokens", call_prompt_tokens(c));
    put_u64(o, "completion_tokens", call_answer_tokens(c));
    put_u64(o, "total_tokens", call_prompt_tokens(c) + call_answer_tokens(c));
    put_object(o, "prompt_tokens_details");
    put_u64(o, "cached_tokens", call_cached_tokens(c));
    json_close_object(o);
    json_close_object(o);
}

static double per(double a, double b)
{
    return b > 0 ? a / b : 0;
}

void put_timings(struct json_out *o, const char *key, const struct choice *h)
{
    const struct job_timings *t = &h->status.timings;

    put_object(o, key);
    put_u64(o, "cache_n", t->cache_n);
    put_u64(o, "prompt_n", t->prompt_n);
    put_f64(o, "prompt_ms", t->prompt_ms);
    put_f64(o, "prompt_per_token_ms", per(t->prompt_ms, (double)t->prompt_n));
    put_f64(o, "prompt_per_second", per(1e3 * (double)t->prompt_n, t->prompt_ms));
    put_u64(o, "predicted_n", t->predicted_n);
    put_f64(o, "predicted_ms", t->predicted_ms);
    put_f64(o, "predicted_per_token_ms", per(t->predicted_ms, (double)t->predicted_n));
    put_f64(o, "predicted_per_second", per(1e3 * (double)t->predicted_n, t->predicted_ms));
    if (t->draft_n) {
        put_u64(o, "draft_n", t->draft_n);
        put_u64(o, "draft_n_accepted", t->draft_n_accepted);
    }
    put_f64(o, "queue_ms", t->queue_ms);
    put_f64(o, "expert_wait_ms", t->wait_ms);
    put_f64(o, "experts", t->items);
    put_f64(o, "card_hit_rate", per(t->card_items, t->items));
    put_f64(o, "ram_hit_rate", per(t->items - t->card_items - t->disk_items, t->items));
    put_f64(o, "disk_rate", per(t->disk_items, t->items));
    put_f64(o, "bytes_read", t->bytes_read);
    json_close_object(o);
}

void put_progress(struct json_out *o, const char *key, const struct choice *h)
{
    put_object(o, key);
    put_u64(o, "total", h->status.total);
    put_u64(o, "cache", h->status.cached);
    put_u64(o, "processed", h->status.processed);
    put_f64(o, "time_ms", h->status.timings.prompt_ms);
    json_close_object(o);
}

/* ---- tokens ---- */

void put_token_text(struct json_out *o, const char *key, const struct tokenizer *t, uint32_t id)
{
    char text[3 * TOKEN_TEXT_MAX];
    const char *s;
    size_t n, m = 0, len;

    token_piece(t, id, 1, &s, &n);
    for (size_t i = 0; i < n; i += len) {
        if (utf8_next(s + i, n - i, &len) == UTF8_OK) {
            memcpy(text + m, s + i, len);
            m += len;
        } else {
            memcpy(text + m, "\xEF\xBF\xBD", 3);
            m += 3;
        }
    }
    if (key)
        json_key(o, key);
    json_put_strn(o, text, m);
}

void put_token_bytes(struct json_out *o, const char *key, const struct tokenizer *t, uint32_t id)
{
    const char *s;
    size_t n;

    token_piece(t, id, 1, &s, &n);
    put_array(o, key);
    for (size_t i = 0; i < n; i++)
        json_put_u64(o, (unsigned char)s[i]);
    json_close_array(o);
}

static void put_prob(struct json_out *o, const struct tokenizer *t, uint32_t id, float logprob)
{
    put_token_text(o, "token", t, id);
    put_u64(o, "id", id);
    put_f64(o, "logprob", isfinite(logprob) ? logprob : -9999); /* JSON has no infinity; OpenAI writes this */
    put_token_bytes(o, "bytes", t, id);
}

void put_chat_probs(struct json_out *o, const struct call *c, const struct choice *h, size_t from, size_t to)
{
    const struct tokenizer *t = api_served(c->api)->tok;

    json_open_array(o);
    for (size_t i = from; i < to; i++) {
        const struct job_token *k = &h->turn.token[i].t;

        json_open_object(o);
        put_prob(o, t, k->id, k->logprob);
        put_array(o, "top_logprobs");
        for (uint32_t j = 0; j < k->n_top && (int)j < c->r.n_probs; j++) {
            json_open_object(o);
            put_prob(o, t, k->top[j].id, k->top[j].logprob);
            json_close_object(o);
        }
        json_close_array(o);
        json_close_object(o);
    }
    json_close_array(o);
}
