/* OpenAI's Responses as a chat's object. Nothing is stored here: each request brings its whole conversation. */
#include <string.h>

#include "coordinator/serve/api/fields.h"
#include "coordinator/serve/api/put.h"
#include "coordinator/serve/api/request.h"

static int is_text(const struct json *type)
{
    return json_is(type, "input_text") || json_is(type, "output_text") || json_is(type, "text") ||
           json_is(type, "refusal");
}

static void put_content(struct json_out *o, const struct json *content, size_t item, struct fault *f)
{
    if (!content || content->kind != JSON_ARRAY) {
        if (content && content->kind == JSON_STRING)
            put_value(o, "content", content);
        else
            fault_set(f, 400, "input", "input[%zu].content: a text or an array of parts is wanted", item);
        return;
    }
    put_array(o, "content");
    for (size_t i = 0; i < content->n; i++) {
        const struct json *p = &content->items[i], *type = json_get(p, "type"),
                          *text = json_get(p, json_is(type, "refusal") ? "refusal" : "text");

        if (!is_text(type) || !text || text->kind != JSON_STRING) {
            fault_set(f, 400, "input",
                      "input[%zu].content[%zu]: parts of type '%.40s' are not supported, this model reads text", item,
                      i, type && type->kind == JSON_STRING ? type->text : "?");
            break;
        }
        json_open_object(o);
        put_text(o, "type", "text");
        put_value(o, "text", text);
        json_close_object(o);
    }
    json_close_array(o);
}

/* The text of a thought that a client sends back, or NULL. */
static const struct json *thought_of(const struct json *item)
{
    const struct json *text = json_get(json_at(json_get(item, "content"), 0), "text");

    return text ? text : json_get(json_at(json_get(item, "summary"), 0), "text");
}

/* Items from i on that are one assistant's message: a thought, a text, calls, in this order. Returns how many. */
static size_t put_assistant(struct json_out *o, const struct json *input, size_t i, struct fault *f)
{
    size_t n = i;
    const struct json *at = &input->items[n], *thought;
    int said = 0;

    json_open_object(o);
    put_text(o, "role", "assistant");
    if (json_is(json_get(at, "type"), "reasoning")) {
        thought = thought_of(at);
        if (thought && thought->kind == JSON_STRING)
            put_value(o, "reasoning_content", thought);
        n++;
    }
    if (n < input->n && json_is(json_get(&input->items[n], "role"), "assistant")) {
        put_content(o, json_get(&input->items[n], "content"), n, f);
        said = 1;
        n++;
    }
    if (!said)
        put_text(o, "content", "");
    if (n < input->n && json_is(json_get(&input->items[n], "type"), "function_call")) {
        put_array(o, "tool_calls");
        for (; n < input->n && json_is(json_get(&input->items[n], "type"), "function_call"); n++) {
            const struct json *c = &input->items[n], *id = json_get(c, "call_id"), *name = json_get(c, "name"),
                              *arguments = json_get(c, "arguments");

            if (!id || id->kind != JSON_STRING || !name || name->kind != JSON_STRING || !arguments) {
                fault_set(f, 400, "input", "input[%zu]: a function_call needs call_id, name and arguments", n);
                break;
            }
            json_open_object(o);
            put_value(o, "id", id);
            put_text(o, "type", "function");
            put_object(o, "function");
            put_value(o, "name", name);
            put_value(o, "arguments", arguments);
            json_close_object(o);
            json_close_object(o);
        }
        json_close_array(o);
    }
    json_close_object(o);
    return n - i;
}

static size_t put_item(struct json_out *o, const struct json *input, size_t i, struct fault *f)
{
    const struct json *x = &input->items[i], *type = field_any(x, "type"), *role = json_get(x, "role"), *id;

    if (json_is(type, "reasoning") || json_is(type, "function_call") ||
        (json_is(role, "assistant") && (!type || json_is(type, "message"))))
        return put_assistant(o, input, i, f);
    if (json_is(type, "function_call_output")) {
        id = json_get(x, "call_id");
        if (!id || id->kind != JSON_STRING) {
            fault_set(f, 400, "input", "input[%zu]: a function_call_output needs its call_id", i);
            return 1;
        }
        json_open_object(o);
        put_text(o, "role", "tool");
        put_value(o, "tool_call_id", id);
        put_content(o, json_get(x, "output"), i, f);
        json_close_object(o);
        return 1;
    }
    if ((type && !json_is(type, "message")) || !role || role->kind != JSON_STRING) {
        fault_set(f, 400, "input", "input[%zu]: items of type '%.40s' are not supported", i,
                  type && type->kind == JSON_STRING ? type->text : "?");
        return 1;
    }
    json_open_object(o);
    put_value(o, "role", role);
    put_content(o, json_get(x, "content"), i, f);
    json_close_object(o);
    return 1;
}

static void put_messages(struct json_out *o, const struct json *body, struct fault *f)
{
    const struct json *input = field_any(body, "input");
    const char *instructions = NULL;

    put_array(o, "messages");
    if (field_text(body, "instructions", &instructions, f)) {
        json_open_object(o);
        put_text(o, "role", "system");
        put_text(o, "content", instructions);
        json_close_object(o);
    }
    if (input && input->kind == JSON_STRING) {
        json_open_object(o);
        put_text(o, "role", "user");
        put_value(o, "content", input);
        json_close_object(o);
    } else if (input && input->kind == JSON_ARRAY) {
        for (size_t i = 0; i < input->n && !f->status;)
            i += put_item(o, input, i, f);
    } else {
        fault_set(f, 400, "input", "input: a text or an array of items is wanted");
    }
    json_close_array(o);
}

static void put_tools(struct json_out *o, const struct json *body, struct fault *f)
{
    static const char *const members[] = {"name", "description", "parameters", "strict"};
    const struct json *tools = NULL;

    if (!field_array(body, "tools", &tools, f) || !tools->n)
        return;
    put_array(o, "tools");
    for (size_t i = 0; i < tools->n; i++) {
        const struct json *t = &tools->items[i], *name = json_get(t, "name");

        if (!json_is(json_get(t, "type"), "function") || !name || name->kind != JSON_STRING) {
            fault_set(f, 400, "tools", "tools[%zu]: tools of type function, with a name, are supported", i);
            break;
        }
        json_open_object(o);
        put_text(o, "type", "function");
        put_object(o, "function");
        for (size_t k = 0; k < sizeof members / sizeof *members; k++)
            if (field_any(t, members[k]))
                put_value(o, members[k], json_get(t, members[k]));
        json_close_object(o);
        json_close_object(o);
    }
    json_close_array(o);
}

/* What would be kept at the server is refused, not ignored: the answer would be another one. */
static void refuse_state(const struct json *body, struct fault *f)
{
    static const char *const keys[] = {"previous_response_id", "conversation", "prompt"};
    int background = 0;

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (field_any(body, keys[i]))
            fault_set(f, 400, keys[i], "%s: nothing is stored here; send the whole conversation as input", keys[i]);
    if (field_bool(body, "background", &background, f) && background)
        fault_set(f, 400, "background", "background: is not supported");
}

static void put_format(struct json_out *o, const struct json *body, struct fault *f)
{
    const struct json *text = NULL, *format = NULL;

    if (!field_object(body, "text", &text, f) || !field_object(text, "format", &format, f))
        return;
    put_value(o, "response_format", format); /* its json_schema has the schema beside the type */
}

int request_from_responses(const struct json *body, struct json_doc **out, struct fault *f)
{
    struct json_out *o = json_out_new(0);
    const struct json *reasoning = NULL;
    const char *text;
    struct err e = {0};
    size_t n;

    if (!o)
        return fault_set(f, 500, NULL, "no memory for the request");
    refuse_state(body, f);
    json_open_object(o);
    put_messages(o, body, f);
    put_tools(o, body, f);
    put_format(o, body, f);
    if (field_object(body, "reasoning", &reasoning, f) && field_any(reasoning, "effort"))
        put_value(o, "reasoning_effort", json_get(reasoning, "effort"));
    for (size_t i = 0; i < 3; i++) {
        static const char *const same[] = {"tool_choice", "parallel_tool_calls", "chat_template_kwargs"};

        if (field_any(body, same[i]))
            put_value(o, same[i], json_get(body, same[i]));
    }
    json_close_object(o);
    if (!f->status && (json_text(o, &text, &n, &e) || json_parse("the request", text, n, NULL, out, &e)))
        fault_set(f, 500, NULL, "%s", e.msg);
    json_out_free(o);
    return f->status;
}
