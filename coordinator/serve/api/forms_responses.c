/* /v1/responses: a list of items, each opened, filled and closed by events that are numbered. */
#include <stdio.h>
#include <string.h>

#include "coordinator/serve/api/call.h"
#include "coordinator/serve/api/put.h"

enum { PART_NONE, PART_THOUGHT, PART_TEXT };

static const char *status_of(const struct choice *h)
{
    return h->finish == FINISH_NOT ? "in_progress" : h->finish == FINISH_LENGTH ? "incomplete" : "completed";
}

/* Ids of items: the response's own with the item's number. */
static const char *item_id(const struct call *c, const char *prefix, size_t i, char id[64])
{
    snprintf(id, 64, "%s_%s_%zu", prefix, c->id + 5, i); /* behind "resp_" */
    return id;
}

static struct json_out *event_open(struct call *c, const char *type)
{
    struct json_out *o = event_begin();

    if (o) {
        json_open_object(o);
        put_text(o, "type", type);
        put_i64(o, "sequence_number", c->sequence++);
    }
    return o;
}

static void event_close(struct call *c, const char *type, struct json_out *o)
{
    if (o)
        json_close_object(o);
    event_send(c, type, o);
}

/* ---- items ---- */

static void put_text_part(struct json_out *o, const struct call *c, const struct choice *h, const char *s, size_t n,
                          int probs)
{
    json_open_object(o);
    put_text(o, "type", "output_text");
    put_bytes(o, "text", s, n);
    put_array(o, "annotations");
    json_close_array(o);
    json_key(o, "logprobs");
    put_chat_probs(o, c, h, 0, probs && c->r.n_probs >= 0 ? h->turn.n_kept : 0);
    json_close_object(o);
}

static void put_message(struct json_out *o, const struct call *c, const struct choice *h, const char *id,
                        const char *status, const char *s, size_t n, int open)
{
    put_text(o, "id", id);
    put_text(o, "type", "message");
    put_text(o, "status", status);
    put_text(o, "role", "assistant");
    put_array(o, "content");
    if (!open)
        put_text_part(o, c, h, s, n, 1);
    json_close_array(o);
}

static void put_thought(struct json_out *o, const char *id, const char *status, const char *s, size_t n, int open)
{
    put_text(o, "id", id);
    put_text(o, "type", "reasoning");
    put_text(o, "status", status);
    put_array(o, "summary");
    json_close_array(o);
    put_array(o, "content");
    if (!open) {
        json_open_object(o);
        put_text(o, "type", "reasoning_text");
        put_bytes(o, "text", s, n);
        json_close_object(o);
    }
    json_close_array(o);
}

static void put_call(struct json_out *o, const char *id, const char *status, const struct answer_call *k, int open)
{
    put_text(o, "id", id);
    put_text(o, "type", "function_call");
    put_text(o, "status", status);
    put_text(o, "call_id", k->id);
    put_text(o, "name", k->name);
    put_text(o, "arguments", open ? "" : k->arguments);
}

static void put_output(struct json_out *o, const struct call *c, const struct choice *h)
{
    size_t n, m, i = 0;
    const char *thought = answer_reasoning(h->turn.answer, &n), *content = answer_content(h->turn.answer, &m);
    char id[64];

    put_array(o, "output");
    if (n) {
        json_open_object(o);
        put_thought(o, item_id(c, "rs", i++, id), "completed", thought, n, 0);
        json_close_object(o);
    }
    if (m || !answer_n_calls(h->turn.answer)) {
        json_open_object(o);
        put_message(o, c, h, item_id(c, "msg", i++, id), status_of(h), content, m, 0);
        json_close_object(o);
    }
    for (size_t k = 0; k < answer_n_calls(h->turn.answer); k++) {
        json_open_object(o);
        put_call(o, item_id(c, "fc", i++, id), "completed", answer_call(h->turn.answer, k), 0);
        json_close_object(o);
    }
    json_close_array(o);
}

static void put_usage(struct json_out *o, const struct call *c)
{
    put_object(o, "usage");
    put_u64(o, "input_tokens", call_prompt_tokens(c));
    put_object(o, "input_tokens_details");
    put_u64(o, "cached_tokens", call_cached_tokens(c));
    json_close_object(o);
    put_u64(o, "output_tokens", call_answer_tokens(c));
    put_object(o, "output_tokens_details");
    put_u64(o, "reasoning_tokens", 0); /* not told apart by tokens */
    json_close_object(o);
    put_u64(o, "total_tokens", call_prompt_tokens(c) + call_answer_tokens(c));
    json_close_object(o);
}

/* Members of the request as it was taken: the client's own, else what OpenAI has there. */
static void put_request(struct json_out *o, const struct call *c)
{
    static const char *const members[] = {"instructions", "metadata", "tools", "tool_choice", "reasoning", "text",
                                          "max_output_tokens"};

    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const struct json *v = json_get(c->r.body, members[i]);

        if (v) {
            put_value(o, members[i], v);
        } else if (!strcmp(members[i], "tools")) {
            put_array(o, members[i]);
            json_close_array(o);
        } else if (!strcmp(members[i], "tool_choice")) {
            put_text(o, members[i], "auto");
        } else {
            put_null(o, members[i]);
        }
    }
    put_bool(o, "parallel_tool_calls", !c->r.one_call);
    put_null(o, "previous_response_id");
    put_bool(o, "store", 0);
    put_f64(o, "temperature", c->r.settings.temp);
    put_f64(o, "top_p", c->r.settings.top_p);
    put_text(o, "truncation", "disabled");
}

static void put_response(struct json_out *o, const struct call *c)
{
    const struct choice *h = &c->choice[0];

    put_text(o, "id", c->id);
    put_text(o, "object", "response");
    put_i64(o, "created_at", c->created);
    put_text(o, "status", status_of(h));
    put_null(o, "error");
    json_key(o, "incomplete_details");
    if (h->finish == FINISH_LENGTH) {
        json_open_object(o);
        put_text(o, "reason", "max_output_tokens");
        json_close_object(o);
    } else {
        json_put_null(o);
    }
    put_text(o, "model", api_served(c->api)->name);
    put_request(o, c);
    if (h->finish == FINISH_NOT) {
        put_array(o, "output");
        json_close_array(o);
        put_null(o, "usage");
        return;
    }
    put_output(o, c, h);
    put_usage(o, c);
    put_timings(o, "timings", h);
}

static void send_response(struct call *c, const char *type)
{
    struct json_out *o = event_open(c, type);

    if (o) {
        put_object(o, "response");
        put_response(o, c);
        json_close_object(o);
    }
    event_close(c, type, o);
}

/* ---- the stream ---- */

static void begin(struct call *c)
{
    send_response(c, "response.created");
    send_response(c, "response.in_progress");
}

/* An event about the item that is open: its place, and a text under key. */
static void send_text(struct call *c, const struct choice *h, const char *type, const char *key, const char *s,
                      size_t n)
{
    struct json_out *o = event_open(c, type);
    size_t at = c->n_items - 1;
    char id[64];

    if (o) {
        put_text(o, "item_id", item_id(c, h->part == PART_TEXT ? "msg" : "rs", at, id));
        put_u64(o, "output_index", at);
        put_u64(o, "content_index", 0);
        put_bytes(o, key, s, n);
        if (h->part == PART_TEXT) {
            put_array(o, "logprobs");
            json_close_array(o);
        }
    }
    event_close(c, type, o);
}

static void send_part(struct call *c, const struct choice *h, const char *type, const char *s, size_t n)
{
    struct json_out *o = event_open(c, type);
    size_t at = c->n_items - 1;
    char id[64];

    if (o) {
        put_text(o, "item_id", item_id(c, "msg", at, id));
        put_u64(o, "output_index", at);
        put_u64(o, "content_index", 0);
        json_key(o, "part");
        put_text_part(o, c, h, s, n, 0);
    }
    event_close(c, type, o);
}

static void send_item(struct call *c, const struct choice *h, const char *type, const char *s, size_t n, int open)
{
    struct json_out *o = event_open(c, type);
    size_t at = c->n_items - 1;
    char id[64];

    if (o) {
        put_u64(o, "output_index", at);
        put_object(o, "item");
        if (h->part == PART_TEXT)
            put_message(o, c, h, item_id(c, "msg", at, id), open ? "in_progress" : "completed", s, n, open);
        else
            put_thought(o, item_id(c, "rs", at, id), open ? "in_progress" : "completed", s, n, open);
        json_close_object(o);
    }
    event_close(c, type, o);
}

static void close_part(struct call *c, struct choice *h)
{
    size_t n;
    const char *s;

    if (h->part == PART_TEXT) {
        s = answer_content(h->turn.answer, &n);
        send_text(c, h, "response.output_text.done", "text", s, n);
        send_part(c, h, "response.content_part.done", s, n);
        send_item(c, h, "response.output_item.done", s, n, 0);
    } else if (h->part == PART_THOUGHT) {
        s = answer_reasoning(h->turn.answer, &n);
        send_text(c, h, "response.reasoning_text.done", "text", s, n);
        send_item(c, h, "response.output_item.done", s, n, 0);
    }
    h->part = PART_NONE;
}

static void open_part(struct call *c, struct choice *h, int part)
{
    if (h->part == part)
        return;
    close_part(c, h);
    h->part = part;
    c->n_items++;
    send_item(c, h, "response.output_item.added", "", 0, 1);
    if (part == PART_TEXT)
        send_part(c, h, "response.content_part.added", "", 0);
}

static void send_call_item(struct call *c, const char *type, const struct answer_call *k, int open)
{
    struct json_out *o = event_open(c, type);
    char id[64];

    if (o) {
        put_u64(o, "output_index", c->n_items - 1);
        put_object(o, "item");
        put_call(o, item_id(c, "fc", c->n_items - 1, id), open ? "in_progress" : "completed", k, open);
        json_close_object(o);
    }
    event_close(c, type, o);
}

static void send_arguments(struct call *c, const char *type, const char *key, const struct answer_call *k)
{
    struct json_out *o = event_open(c, type);
    char id[64];

    if (o) {
        put_text(o, "item_id", item_id(c, "fc", c->n_items - 1, id));
        put_u64(o, "output_index", c->n_items - 1);
        put_text(o, key, k->arguments);
    }
    event_close(c, type, o);
}

static void send_call(struct call *c, struct choice *h, const struct answer_call *k)
{
    close_part(c, h);
    c->n_items++;
    send_call_item(c, "response.output_item.added", k, 1);
    send_arguments(c, "response.function_call_arguments.delta", "delta", k);
    send_arguments(c, "response.function_call_arguments.done", "arguments", k);
    send_call_item(c, "response.output_item.done", k, 0);
}

static void delta(struct call *c, struct choice *h)
{
    size_t n, m;
    const char *thought = answer_reasoning(h->turn.answer, &n), *content = answer_content(h->turn.answer, &m);

    if (n > h->thought) {
        open_part(c, h, PART_THOUGHT);
        send_text(c, h, "response.reasoning_text.delta", "delta", thought + h->thought, n - h->thought);
        h->thought = n;
    }
    if (m > h->content) {
        open_part(c, h, PART_TEXT);
        send_text(c, h, "response.output_text.delta", "delta", content + h->content, m - h->content);
        h->content = m;
    }
    while (h->calls < answer_n_calls(h->turn.answer))
        send_call(c, h, answer_call(h->turn.answer, h->calls++));
}

static void finished(struct call *c, struct choice *h)
{
    if (!c->n_items)
        open_part(c, h, PART_TEXT);
    close_part(c, h);
}

static void end(struct call *c)
{
    send_response(c, c->choice[0].finish == FINISH_LENGTH ? "response.incomplete" : "response.completed");
}

static void whole(struct call *c, struct json_out *o)
{
    json_open_object(o);
    put_response(o, c);
    json_close_object(o);
}

const struct forms forms_responses = {"resp_", begin, delta, finished, end, whole, FAULT_OPENAI};
