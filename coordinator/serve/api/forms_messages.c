/* /v1/messages: Anthropic's form. The output is a list of blocks, opened and closed one after another. */
#include <string.h>

#include "coordinator/serve/api/call.h"
#include "coordinator/serve/api/put.h"

enum { PART_NONE, PART_THOUGHT, PART_TEXT };

static const char *reason(const struct choice *h)
{
    switch (h->finish) {
    case FINISH_TOOLS:
        return "tool_use";
    case FINISH_LENGTH:
        return h->status.reason == JOB_CONTEXT ? "model_context_window_exceeded" : "max_tokens";
    case FINISH_WORD:
        return "stop_sequence";
    default:
        return "end_turn";
    }
}

static void put_usage(struct json_out *o, const struct call *c)
{
    size_t cached = call_cached_tokens(c);

    put_object(o, "usage");
    put_u64(o, "input_tokens", call_prompt_tokens(c) - cached);
    put_u64(o, "cache_read_input_tokens", cached);
    put_u64(o, "cache_creation_input_tokens", 0);
    put_u64(o, "output_tokens", call_answer_tokens(c));
    json_close_object(o);
}

static void put_reason(struct json_out *o, const struct call *c, const struct choice *h)
{
    put_text(o, "stop_reason", reason(h));
    json_key(o, "stop_sequence");
    if (h->turn.word >= 0)
        json_put_strn(o, c->r.stop_text[h->turn.word], c->r.stop_len[h->turn.word]);
    else
        json_put_null(o);
}

static struct json_out *event_open(const char *type)
{
    struct json_out *o = event_begin();

    if (o) {
        json_open_object(o);
        put_text(o, "type", type);
    }
    return o;
}

static void event_close(struct call *c, const char *type, struct json_out *o)
{
    if (o)
        json_close_object(o);
    event_send(c, type, o);
}

static void begin(struct call *c)
{
    struct json_out *o = event_open("message_start");

    if (!o)
        return;
    put_object(o, "message");
    put_text(o, "id", c->id);
    put_text(o, "type", "message");
    put_text(o, "role", "assistant");
    put_text(o, "model", api_served(c->api)->name);
    put_array(o, "content");
    json_close_array(o);
    put_null(o, "stop_reason");
    put_null(o, "stop_sequence");
    put_usage(o, c);
    json_close_object(o);
    event_close(c, "message_start", o);
}

static void close_part(struct call *c, struct choice *h)
{
    struct json_out *o;

    if (h->part == PART_NONE)
        return;
    h->part = PART_NONE;
    if ((o = event_open("content_block_stop")))
        put_u64(o, "index", c->n_items - 1);
    event_close(c, "content_block_stop", o);
}

static void put_block(struct json_out *o, int part, const char *s, size_t n)
{
    put_text(o, "type", part == PART_TEXT ? "text" : "thinking");
    put_bytes(o, part == PART_TEXT ? "text" : "thinking", s, n);
    if (part == PART_THOUGHT)
        put_text(o, "signature", "");
}

static void open_part(struct call *c, struct choice *h, int part)
{
    struct json_out *o;

    if (h->part == part)
        return;
    close_part(c, h);
    h->part = part;
    if ((o = event_open("content_block_start"))) {
        put_u64(o, "index", c->n_items);
        put_object(o, "content_block");
        put_block(o, part, "", 0);
        json_close_object(o);
    }
    c->n_items++;
    event_close(c, "content_block_start", o);
}

static void send_delta(struct call *c, const char *type, const char *key, const char *s, size_t n)
{
    struct json_out *o = event_open("content_block_delta");

    if (o) {
        put_u64(o, "index", c->n_items - 1);
        put_object(o, "delta");
        put_text(o, "type", type);
        put_bytes(o, key, s, n);
        json_close_object(o);
    }
    event_close(c, "content_block_delta", o);
}

static void put_call(struct json_out *o, const struct answer_call *k, int with_input)
{
    put_text(o, "type", "tool_use");
    put_text(o, "id", k->id);
    put_text(o, "name", k->name);
    json_key(o, "input");
    if (with_input) {
        json_put_number(o, k->arguments, strlen(k->arguments)); /* JSON, as the model wrote it */
    } else {
        json_open_object(o);
        json_close_object(o);
    }
}

static void send_call(struct call *c, struct choice *h, const struct answer_call *k)
{
    struct json_out *o;

    close_part(c, h);
    if ((o = event_open("content_block_start"))) {
        put_u64(o, "index", c->n_items);
        put_object(o, "content_block");
        put_call(o, k, 0);
        json_close_object(o);
    }
    c->n_items++;
    event_close(c, "content_block_start", o);
    send_delta(c, "input_json_delta", "partial_json", k->arguments, strlen(k->arguments));
    h->part = PART_TEXT; /* whatever it was: it is closed */
    close_part(c, h);
}

static void delta(struct call *c, struct choice *h)
{
    size_t n, m;
    const char *thought = answer_reasoning(h->turn.answer, &n), *content = answer_content(h->turn.answer, &m);

    if (n > h->thought) {
        open_part(c, h, PART_THOUGHT);
        send_delta(c, "thinking_delta", "thinking", thought + h->thought, n - h->thought);
        h->thought = n;
    }
    if (m > h->content) {
        open_part(c, h, PART_TEXT);
        send_delta(c, "text_delta", "text", content + h->content, m - h->content);
        h->content = m;
    }
    while (h->calls < answer_n_calls(h->turn.answer))
        send_call(c, h, answer_call(h->turn.answer, h->calls++));
}

static void finished(struct call *c, struct choice *h)
{
    struct json_out *o;

    close_part(c, h);
    if ((o = event_open("message_delta"))) {
        put_object(o, "delta");
        put_reason(o, c, h);
        json_close_object(o);
        put_usage(o, c);
        put_timings(o, "timings", h);
    }
    event_close(c, "message_delta", o);
}

static void end(struct call *c)
{
    event_close(c, "message_stop", event_open("message_stop"));
}

static void whole(struct call *c, struct json_out *o)
{
    const struct choice *h = &c->choice[0];
    size_t n, m;
    const char *thought = answer_reasoning(h->turn.answer, &n), *content = answer_content(h->turn.answer, &m);

    json_open_object(o);
    put_text(o, "id", c->id);
    put_text(o, "type", "message");
    put_text(o, "role", "assistant");
    put_text(o, "model", api_served(c->api)->name);
    put_array(o, "content");
    if (n) {
        json_open_object(o);
        put_block(o, PART_THOUGHT, thought, n);
        json_close_object(o);
    }
    if (m || !answer_n_calls(h->turn.answer)) {
        json_open_object(o);
        put_block(o, PART_TEXT, content, m);
        json_close_object(o);
    }
    for (size_t i = 0; i < answer_n_calls(h->turn.answer); i++) {
        json_open_object(o);
        put_call(o, answer_call(h->turn.answer, i), 1);
        json_close_object(o);
    }
    json_close_array(o);
    put_reason(o, c, h);
    put_usage(o, c);
    put_timings(o, "timings", h);
    json_close_object(o);
}

const struct forms forms_messages = {"msg_", begin, delta, finished, end, whole, FAULT_ANTHROPIC};
