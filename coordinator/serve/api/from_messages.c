/* Anthropic's Messages as a chat's object: written as JSON and read again, so that what follows sees one form. */
#include <string.h>

#include "coordinator/json/json_write.h"
#include "coordinator/serve/api/fields.h"
#include "coordinator/serve/api/put.h"
#include "coordinator/serve/api/request.h"

/* ---- contents ---- */

/* A text of blocks as parts. where: for refusals. */
static void put_text_blocks(struct json_out *o, const struct json *content, const char *where, struct fault *f)
{
    json_open_array(o);
    for (size_t i = 0; i < content->n; i++) {
        const struct json *b = &content->items[i], *text = json_get(b, "text"), *type = json_get(b, "type");

        if (!json_is(type, "text") || !text || text->kind != JSON_STRING) {
            fault_set(f, 400, where, "%s[%zu]: a block of type text is wanted%s", where, i,
                      json_is(type, "image") || json_is(type, "document") ? "; this model reads text" : "");
            break;
        }
        json_open_object(o);
        put_text(o, "type", "text");
        put_value(o, "text", text);
        json_close_object(o);
    }
    json_close_array(o);
}

static void put_content(struct json_out *o, const struct json *content, const char *where, struct fault *f)
{
    json_key(o, "content");
    if (content && content->kind == JSON_ARRAY)
        put_text_blocks(o, content, where, f);
    else if (content && content->kind == JSON_STRING)
        put_any(o, content);
    else if (!content || content->kind == JSON_NULL)
        json_put_str(o, "");
    else
        fault_set(f, 400, where, "%s: a text or an array of blocks is wanted", where), json_put_null(o);
}

/* What a user's blocks are: results of tools first, as messages of their own, then the text. */
static void put_user(struct json_out *o, const struct json *content, struct fault *f)
{
    size_t texts = 0;

    for (size_t i = 0; i < content->n; i++) {
        const struct json *b = &content->items[i], *id = json_get(b, "tool_use_id");

        if (!json_is(json_get(b, "type"), "tool_result")) {
            texts++;
            continue;
        }
        if (!id || id->kind != JSON_STRING) {
            fault_set(f, 400, "messages", "messages: a tool_result needs its tool_use_id");
            return;
        }
        json_open_object(o);
        put_text(o, "role", "tool");
        put_value(o, "tool_call_id", id);
        put_content(o, json_get(b, "content"), "messages.content.content", f);
        json_close_object(o);
    }
    if (!texts && content->n)
        return;
    json_open_object(o);
    put_text(o, "role", "user");
    json_key(o, "content");
    json_open_array(o);
    for (size_t i = 0; i < content->n; i++) {
        const struct json *b = &content->items[i], *type = json_get(b, "type"), *text = json_get(b, "text");

        if (json_is(type, "tool_result"))
            continue;
        if (!json_is(type, "text") || !text || text->kind != JSON_STRING) {
            fault_set(f, 400, "messages", "messages: blocks of type '%.40s' are not supported, this model reads text",
                      type && type->kind == JSON_STRING ? type->text : "?");
            break;
        }
        json_open_object(o);
        put_text(o, "type", "text");
        put_value(o, "text", text);
        json_close_object(o);
    }
    json_close_array(o);
    json_close_object(o);
}

static void put_call(struct json_out *o, const struct json *b, struct fault *f)
{
    const struct json *id = json_get(b, "id"), *name = json_get(b, "name"), *input = json_get(b, "input");

    if (!id || id->kind != JSON_STRING || !name || name->kind != JSON_STRING || !input || input->kind != JSON_OBJECT) {
        fault_set(f, 400, "messages", "messages: a tool_use needs id, name and input");
        return;
    }
    json_open_object(o);
    put_value(o, "id", id);
    put_text(o, "type", "function");
    json_key(o, "function");
    json_open_object(o);
    put_value(o, "name", name);
    put_value(o, "arguments", input);
    json_close_object(o);
    json_close_object(o);
}

/* The blocks of one type, as parts that are texts. */
static void put_parts(struct json_out *o, const char *key, const struct json *content, const char *type,
                      const char *member)
{
    json_key(o, key);
    json_open_array(o);
    for (size_t i = 0; i < content->n; i++) {
        const struct json *b = &content->items[i], *text = json_get(b, member);

        if (!json_is(json_get(b, "type"), type) || !text || text->kind != JSON_STRING)
            continue;
        json_open_object(o);
        put_text(o, "type", "text");
        put_value(o, "text", text);
        json_close_object(o);
    }
    json_close_array(o);
}

static void put_assistant(struct json_out *o, const struct json *content, struct fault *f)
{
    const struct json *thought = NULL;
    int calls = 0, texts = 0;

    json_open_object(o);
    put_text(o, "role", "assistant");
    for (size_t i = 0; i < content->n; i++) {
        const struct json *b = &content->items[i], *type = json_get(b, "type");

        calls |= json_is(type, "tool_use");
        texts |= json_is(type, "text");
        if (json_is(type, "thinking"))
            thought = json_get(b, "thinking");
        else if (!json_is(type, "tool_use") && !json_is(type, "text") && !json_is(type, "redacted_thinking"))
            fault_set(f, 400, "messages", "messages: blocks of type '%.40s' are not supported",
                      type && type->kind == JSON_STRING ? type->text : "?");
    }
    if (thought && thought->kind == JSON_STRING)
        put_value(o, "reasoning_content", thought);
    if (texts)
        put_parts(o, "content", content, "text", "text");
    else
        put_text(o, "content", "");
    if (calls) {
        json_key(o, "tool_calls");
        json_open_array(o);
        for (size_t i = 0; i < content->n; i++)
            if (json_is(json_get(&content->items[i], "type"), "tool_use"))
                put_call(o, &content->items[i], f);
        json_close_array(o);
    }
    json_close_object(o);
}

static void put_messages(struct json_out *o, const struct json *body, struct fault *f)
{
    const struct json *messages = NULL, *system = field_any(body, "system");

    if (!field_array(body, "messages", &messages, f)) {
        fault_set(f, 400, "messages", "messages: an array of at least one message is wanted");
        return;
    }
    json_key(o, "messages");
    json_open_array(o);
    if (system) {
        json_open_object(o);
        put_text(o, "role", "system");
        put_content(o, system, "system", f);
        json_close_object(o);
    }
    for (size_t i = 0; i < messages->n && !f->status; i++) {
        const struct json *m = &messages->items[i], *role = json_get(m, "role"), *content = json_get(m, "content");
        int blocks = content && content->kind == JSON_ARRAY;

        if (!json_is(role, "user") && !json_is(role, "assistant")) {
            fault_set(f, 400, "messages", "messages[%zu].role: user or assistant is wanted", i);
        } else if (blocks && json_is(role, "user")) {
            put_user(o, content, f);
        } else if (blocks) {
            put_assistant(o, content, f);
        } else {
            json_open_object(o);
            put_value(o, "role", role);
            put_content(o, content, "messages.content", f);
            json_close_object(o);
        }
    }
    json_close_array(o);
}

/* ---- the rest ---- */

static void put_tools(struct json_out *o, const struct json *body, struct fault *f)
{
    const struct json *tools = NULL;

    if (!field_array(body, "tools", &tools, f) || !tools->n)
        return;
    json_key(o, "tools");
    json_open_array(o);
    for (size_t i = 0; i < tools->n; i++) {
        const struct json *t = &tools->items[i], *type = field_any(t, "type"), *name = json_get(t, "name"),
                          *about = field_any(t, "description"), *schema = json_get(t, "input_schema");

        if ((type && !json_is(type, "custom")) || !name || name->kind != JSON_STRING || !schema ||
            schema->kind != JSON_OBJECT) {
            fault_set(f, 400, "tools",
                      "tools[%zu]: name and input_schema are wanted; tools that run at the server are not "
                      "supported",
                      i);
            break;
        }
        json_open_object(o);
        put_text(o, "type", "function");
        json_key(o, "function");
        json_open_object(o);
        put_value(o, "name", name);
        if (about)
            put_value(o, "description", about);
        put_value(o, "parameters", schema);
        json_close_object(o);
        json_close_object(o);
    }
    json_close_array(o);
}

static void put_choice(struct json_out *o, const struct json *body, struct fault *f)
{
    const struct json *choice = NULL, *type;
    int serial = 0;

    if (!field_object(body, "tool_choice", &choice, f))
        return;
    type = json_get(choice, "type");
    field_bool(choice, "disable_parallel_tool_use", &serial, f);
    put_text(o, "tool_choice",
             json_is(type, "any") || json_is(type, "tool") ? "required"
             : json_is(type, "none")                       ? "none"
                                                           : "auto");
    if (serial) {
        json_key(o, "parallel_tool_calls");
        json_put_bool(o, 0);
    }
}

int request_from_messages(const struct json *body, int whole, struct json_doc **out, struct fault *f)
{
    struct json_out *o = json_out_new(0);
    const struct json *thinking = NULL;
    const char *text;
    struct err e = {0};
    size_t n;

    if (!o)
        return fault_set(f, 500, NULL, "no memory for the request");
    if (whole && !field_any(body, "max_tokens"))
        fault_set(f, 400, "max_tokens", "max_tokens: this API wants it");
    json_open_object(o);
    put_messages(o, body, f);
    put_tools(o, body, f);
    put_choice(o, body, f);
    if (field_object(body, "thinking", &thinking, f)) {
        json_key(o, "enable_thinking");
        json_put_bool(o, !json_is(json_get(thinking, "type"), "disabled"));
    }
    if (field_any(body, "chat_template_kwargs"))
        put_value(o, "chat_template_kwargs", json_get(body, "chat_template_kwargs"));
    json_close_object(o);
    if (!f->status && (json_text(o, &text, &n, &e) || json_parse("the request", text, n, NULL, out, &e)))
        fault_set(f, 500, NULL, "%s", e.msg);
    json_out_free(o);
    return f->status;
}
