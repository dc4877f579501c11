/* /v1/chat/completions. */
#include "coordinator/serve/api/call.h"
#include "coordinator/serve/api/put.h"

static void put_head(struct json_out *o, const struct call *c, const char *object)
{
    put_text(o, "id", c->id);
    put_text(o, "object", object);
    put_i64(o, "created", c->created);
    put_text(o, "model", api_served(c->api)->name);
    put_text(o, "system_fingerprint", api_fingerprint(c->api));
}

static struct json_out *chunk_open(const struct call *c, const struct choice *h)
{
    struct json_out *o = event_begin();

    if (!o)
        return NULL;
    json_open_object(o);
    put_head(o, c, "chat.completion.chunk");
    put_array(o, "choices");
    if (h) {
        json_open_object(o);
        put_u64(o, "index", (uint64_t)(h - c->choice));
        put_object(o, "delta");
    }
    return o;
}

/* Closes the delta and its choice. */
static void chunk_close(struct json_out *o, const struct call *c, struct choice *h, const char *finish, int whole)
{
    size_t to = turn_certain(&h->turn, whole);

    json_close_object(o);
    json_key(o, "logprobs");
    if (c->r.n_probs >= 0 && to > h->tokens) {
        json_open_object(o);
        json_key(o, "content");
        put_chat_probs(o, c, h, h->tokens, to);
        put_null(o, "refusal");
        json_close_object(o);
        h->tokens = to;
    } else {
        json_put_null(o);
    }
    json_key(o, "finish_reason");
    if (finish)
        json_put_str(o, finish);
    else
        json_put_null(o);
    json_close_object(o);
    json_close_array(o);
}

static void begin(struct call *c)
{
    for (size_t i = 0; i < c->n_choices; i++) {
        struct json_out *o = chunk_open(c, &c->choice[i]);

        if (!o)
            continue;
        put_text(o, "role", "assistant");
        put_null(o, "content");
        chunk_close(o, c, &c->choice[i], NULL, 0);
        json_close_object(o);
        event_send(c, NULL, o);
    }
}

static void put_call(struct json_out *o, const struct answer_call *k, size_t index, int stream)
{
    json_open_object(o);
    if (stream)
        put_u64(o, "index", index);
    put_text(o, "id", k->id);
    put_text(o, "type", "function");
    put_object(o, "function");
    put_text(o, "name", k->name);
    put_text(o, "arguments", k->arguments);
    json_close_object(o);
    json_close_object(o);
}

static void delta(struct call *c, struct choice *h)
{
    struct json_out *o = chunk_open(c, h);
    size_t n, m, k = answer_n_calls(h->turn.answer);
    const char *thought = answer_reasoning(h->turn.answer, &n), *content = answer_content(h->turn.answer, &m);

    if (!o)
        return;
    if (n > h->thought)
        put_bytes(o, "reasoning_content", thought + h->thought, n - h->thought);
    if (m > h->content)
        put_bytes(o, "content", content + h->content, m - h->content);
    if (k > h->calls) {
        put_array(o, "tool_calls");
        for (size_t i = h->calls; i < k; i++)
            put_call(o, answer_call(h->turn.answer, i), i, 1);
        json_close_array(o);
    }
    h->thought = n;
    h->content = m;
    h->calls = k;
    chunk_close(o, c, h, NULL, 0);
    if (c->r.every_timings)
        put_timings(o, "timings", h);
    json_close_object(o);
    event_send(c, NULL, o);
}

static void finished(struct call *c, struct choice *h)
{
    struct json_out *o = chunk_open(c, h);

    if (!o)
        return;
    chunk_close(o, c, h, finish_openai(h->finish), 1);
    put_timings(o, "timings", h);
    json_close_object(o);
    event_send(c, NULL, o);
}

static void end(struct call *c)
{
    static const char done[] = "data: [DONE]\n\n";
    struct json_out *o = c->r.include_usage ? chunk_open(c, NULL) : NULL;

    if (o) {
        json_close_array(o);
        put_usage_openai(o, c);
        json_close_object(o);
        event_send(c, NULL, o);
    }
    exchange_send(c->x, done, sizeof done - 1);
}

static void put_choice(struct json_out *o, const struct call *c, const struct choice *h)
{
    size_t n, m, k = answer_n_calls(h->turn.answer);
    const char *thought = answer_reasoning(h->turn.answer, &n), *content = answer_content(h->turn.answer, &m);

    json_open_object(o);
    put_u64(o, "index", (uint64_t)(h - c->choice));
    put_object(o, "message");
    put_text(o, "role", "assistant");
    if (m || !k)
        put_bytes(o, "content", content, m);
    else
        put_null(o, "content");
    if (n)
        put_bytes(o, "reasoning_content", thought, n);
    if (k) {
        put_array(o, "tool_calls");
        for (size_t i = 0; i < k; i++)
            put_call(o, answer_call(h->turn.answer, i), i, 0);
        json_close_array(o);
    }
    json_close_object(o);
    json_key(o, "logprobs");
    if (c->r.n_probs >= 0) {
        json_open_object(o);
        json_key(o, "content");
        put_chat_probs(o, c, h, 0, h->turn.n_kept);
        put_null(o, "refusal");
        json_close_object(o);
    } else {
        json_put_null(o);
    }
    put_text(o, "finish_reason", finish_openai(h->finish));
    json_close_object(o);
}

static void whole(struct call *c, struct json_out *o)
{
    json_open_object(o);
    put_head(o, c, "chat.completion");
    put_array(o, "choices");
    for (size_t i = 0; i < c->n_choices; i++)
        put_choice(o, c, &c->choice[i]);
    json_close_array(o);
    put_usage_openai(o, c);
    put_timings(o, "timings", &c->choice[0]);
    json_close_object(o);
}

const struct forms forms_chat = {"chatcmpl-", begin, delta, finished, end, whole, FAULT_OPENAI};
