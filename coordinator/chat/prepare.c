/* Templates are written for tidy messages; clients send what their library makes. The differences are
 * settled here, once, so that no template has to fail or to print None. */
#include "coordinator/chat/prepare.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct work {
    struct prepared *p;
    const struct prepare_rules *rules;
    struct err *e;
    size_t at; /* message in work */
};

static void *take(struct work *w, size_t n)
{
    struct prepared_block *b = calloc(1, sizeof *b + n);

    if (!b) {
        err_set(w->e, -ENOMEM, "no memory for the messages");
        return NULL;
    }
    b->next = w->p->blocks;
    w->p->blocks = b;
    return b->data;
}

#define REFUSE(w, format, ...) err_set((w)->e, -EINVAL, "messages[%zu]" format, (w)->at, __VA_ARGS__)

static struct json string(const char *key, const char *text, size_t n)
{
    return (struct json){.kind = JSON_STRING, .key = key, .key_n = strlen(key), .text = text, .n = n};
}

/* ---- content ---- */

/* The text of a part; NULL: refused. */
static const struct json *part_text(struct work *w, const struct json *part, size_t i)
{
    const struct json *type = json_get(part, "type"), *text = json_get(part, "text");

    if (part->kind == JSON_STRING)
        return part;
    if (part->kind != JSON_OBJECT || !type || type->kind != JSON_STRING) {
        REFUSE(w, ".content[%zu]: an object with a type is wanted", i);
        return NULL;
    }
    if (!json_is(type, "text")) {
        REFUSE(w, ".content[%zu]: parts of type '%.40s' are not supported, this model reads text", i, type->text);
        return NULL;
    }
    if (!text || text->kind != JSON_STRING) {
        REFUSE(w, ".content[%zu].text: a string is wanted", i);
        return NULL;
    }
    return text;
}

static int join_parts(struct work *w, const struct json *content, struct json *out)
{
    size_t n = 0;
    char *all, *at;

    for (size_t i = 0; i < content->n; i++) {
        const struct json *t = part_text(w, &content->items[i], i);

        if (!t)
            return -EINVAL;
        n += t->n;
    }
    if (!(all = at = take(w, n + 1)))
        return -ENOMEM;
    for (size_t i = 0; i < content->n; i++) {
        const struct json *t = part_text(w, &content->items[i], i);

        memcpy(at, t->text, t->n);
        at += t->n;
    }
    *out = string("content", all, n);
    return 0;
}

static int prepare_content(struct work *w, const struct json *content, int is_tool, struct json *out)
{
    if (!content || content->kind == JSON_NULL) {
        *out = string("content", "", 0);
        return 0;
    }
    if (content->kind == JSON_STRING) {
        *out = *content;
        return 0;
    }
    if (content->kind != JSON_ARRAY)
        return REFUSE(w, ".content: %s", "a string, an array of parts or null is wanted");
    if (w->rules->join_parts || is_tool)
        return join_parts(w, content, out);
    for (size_t i = 0; i < content->n; i++)
        if (!part_text(w, &content->items[i], i))
            return -EINVAL;
    *out = *content;
    return 0;
}

/* ---- calls ---- */

static int is_nine(const struct json *id)
{
    if (!id || id->kind != JSON_STRING || id->n != 9)
        return 0;
    for (size_t i = 0; i < 9; i++)
        if (!((id->text[i] >= '0' && id->text[i] <= '9') || (id->text[i] >= 'a' && id->text[i] <= 'z') ||
              (id->text[i] >= 'A' && id->text[i] <= 'Z')))
            return 0;
    return 1;
}

/* The same letters for the same id, wherever it stands. */
static int nine_id(struct work *w, const struct json *id, const char *key, struct json *out)
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    uint64_t h = 0xcbf29ce484222325;
    char *text;

    if (!w->rules->nine_ids || is_nine(id) || id->kind != JSON_STRING) {
        *out = *id;
        return 0;
    }
    for (size_t i = 0; i < id->n; i++)
        h = (h ^ (unsigned char)id->text[i]) * 0x100000001b3;
    if (!(text = take(w, 10)))
        return -ENOMEM;
    for (int i = 0; i < 9; i++, h /= 62)
        text[i] = letters[h % 62];
    *out = string(key, text, 9);
    return 0;
}

/* Arguments as text become the map that the text stands for; no text at all: an empty map. */
static int prepare_arguments(struct work *w, const struct json *a, size_t call, struct json *out)
{
    struct json_limits limits = {.depth = 200};
    struct prepared_doc *d;
    struct err why = {0};
    size_t blank = 0;

    *out = (struct json){.kind = JSON_OBJECT, .key = "arguments", .key_n = 9};
    if (a->kind == JSON_NULL)
        return 0;
    if (a->kind == JSON_OBJECT) {
        *out = *a;
        return 0;
    }
    if (a->kind != JSON_STRING)
        return REFUSE(w, ".tool_calls[%zu].function.arguments: a string or an object is wanted", call);
    while (blank < a->n && strchr(" \t\r\n", a->text[blank]) && a->text[blank])
        blank++;
    if (blank == a->n)
        return 0;
    if (!(d = take(w, sizeof *d)))
        return -ENOMEM;
    if (json_parse("arguments", a->text, a->n, &limits, &d->doc, &why))
        return REFUSE(w, ".tool_calls[%zu].function.%s", call, why.msg);
    d->next = w->p->docs;
    w->p->docs = d;
    if (json_root(d->doc)->kind != JSON_OBJECT)
        return REFUSE(w, ".tool_calls[%zu].function.arguments: the text of an object is wanted", call);
    *out = *json_root(d->doc);
    out->key = "arguments";
    out->key_n = 9;
    return 0;
}

/* An object's members in a place where they may be changed; one place more is free. NULL: no memory. */
static struct json *members(struct work *w, const struct json *o, struct json *copy)
{
    struct json *items = take(w, (o->n + 4) * sizeof *items);

    if (!items)
        return NULL;
    if (o->n)
        memcpy(items, o->items, o->n * sizeof *items);
    *copy = *o;
    copy->items = items;
    return items;
}

static int is_key(const struct json *j, const char *key)
{
    return j->key_n == strlen(key) && !memcmp(j->key, key, j->key_n);
}

static int prepare_call(struct work *w, const struct json *call, size_t i, struct json *out)
{
    const struct json *f = json_get(call, "function"), *name = json_get(f, "name");
    struct json *items, *inner, copy;
    int rc;

    if (!f || f->kind != JSON_OBJECT || !name || name->kind != JSON_STRING)
        return REFUSE(w, ".tool_calls[%zu].function: an object with a name is wanted", i);
    if (!(items = members(w, call, out)))
        return -ENOMEM;
    for (size_t k = 0; k < call->n; k++) {
        if (is_key(&items[k], "id") && (rc = nine_id(w, &call->items[k], "id", &items[k])))
            return rc;
        if (!is_key(&items[k], "function") || items[k].kind != JSON_OBJECT)
            continue;
        if (!(inner = members(w, &call->items[k], &copy)))
            return -ENOMEM;
        items[k] = copy;
        for (size_t a = 0; a < copy.n; a++)
            if (is_key(&inner[a], "arguments") && (rc = prepare_arguments(w, &call->items[k].items[a], i, &inner[a])))
                return rc;
        if (!json_get(&copy, "arguments")) { /* for templates that print them */
            inner[items[k].n] = (struct json){.kind = JSON_OBJECT, .key = "arguments", .key_n = 9};
            items[k].n++;
        }
    }
    return 0;
}

static int prepare_calls(struct work *w, const struct json *calls, struct json *out)
{
    struct json *items;
    int rc;

    if (calls->kind != JSON_ARRAY)
        return REFUSE(w, ".tool_calls: %s", "an array is wanted");
    if (!(items = members(w, calls, out)))
        return -ENOMEM;
    for (size_t i = 0; i < calls->n; i++)
        if ((rc = prepare_call(w, &calls->items[i], i, &items[i])))
            return rc;
    return 0;
}

/* ---- a message ---- */

static const struct json *reasoning_of(const struct json *m)
{
    static const char *const names[] = {"reasoning_content", "reasoning", "thinking"};

    for (int i = 0; i < 3; i++) {
        const struct json *r = json_get(m, names[i]);

        if (r && r->kind == JSON_STRING)
            return r;
    }
    return NULL;
}

static int is_reasoning(const struct json *j)
{
    return is_key(j, "reasoning_content") || is_key(j, "reasoning") || is_key(j, "thinking");
}

static int prepare_message(struct work *w, const struct json *m, struct json *out)
{
    const struct json *role = json_get(m, "role"), *reasoning, *calls = json_get(m, "tool_calls");
    struct json *items, content;
    size_t n = 0;
    int rc, has_calls = calls && calls->kind == JSON_ARRAY && calls->n;

    if (m->kind != JSON_OBJECT || !role || role->kind != JSON_STRING)
        return REFUSE(w, ": %s", "an object with a role is wanted");
    if (!(items = members(w, m, out)))
        return -ENOMEM;
    rc = prepare_content(w, json_get(m, "content"), json_is(role, "tool"), &content);
    if (rc)
        return rc;
    reasoning = reasoning_of(m);
    if (w->rules->one_thought && has_calls && reasoning && reasoning->n && content.n)
        content = string("content", "", 0);
    for (size_t i = 0; i < m->n; i++) {
        struct json j = m->items[i];

        if (j.kind == JSON_NULL || is_key(&j, "content") || is_reasoning(&j))
            continue;
        if (is_key(&j, "tool_calls")) {
            if ((rc = prepare_calls(w, &m->items[i], &j)))
                return rc;
            if (!j.n)
                continue; /* an empty list is none; some templates ask only whether it is there */
        }
        if (is_key(&j, "tool_call_id") && (rc = nine_id(w, &m->items[i], "tool_call_id", &j)))
            return rc;
        items[n++] = j;
    }
    items[n++] = content;
    if (reasoning) {
        items[n++] = string("reasoning_content", reasoning->text, reasoning->n);
        items[n++] = string("thinking", reasoning->text, reasoning->n);
    }
    out->n = n;
    return 0;
}

/* ---- all of them ---- */

/* The place of the call that a result answers; n: it answers none of them. */
static size_t place_of(const struct json *calls, const struct json *result)
{
    const struct json *id = json_get(result, "tool_call_id");
    size_t n = calls ? calls->n : 0;

    for (size_t i = 0; id && id->kind == JSON_STRING && i < n; i++) {
        const struct json *c = json_get(&calls->items[i], "id");

        if (c && c->kind == JSON_STRING && c->n == id->n && !memcmp(c->text, id->text, id->n))
            return i;
    }
    return n;
}

static void order_results(struct json *m, size_t n)
{
    const struct json *calls = NULL;

    for (size_t i = 0; i < n; i++) {
        const struct json *c = json_get(&m[i], "tool_calls");
        size_t end = i;

        if (c)
            calls = c;
        while (end < n && json_is(json_get(&m[end], "role"), "tool"))
            end++;
        for (size_t a = i + 1; a < end; a++) /* few: by insertion, which keeps equals in order */
            for (size_t b = a; b > i && place_of(calls, &m[b - 1]) > place_of(calls, &m[b]); b--) {
                struct json swap = m[b];

                m[b] = m[b - 1];
                m[b - 1] = swap;
            }
        if (end > i)
            i = end - 1;
    }
}

int prepare_messages(const struct json *messages, const struct prepare_rules *rules, struct prepared *out,
                     struct err *e)
{
    struct work w = {.p = out, .rules = rules, .e = e};
    struct json *m;
    int rc = 0;

    *out = (struct prepared){.blocks = NULL};
    if (!messages || messages->kind != JSON_ARRAY)
        return err_set(e, -EINVAL, "messages: an array is wanted");
    m = members(&w, messages, &out->messages);
    for (w.at = 0; m && !rc && w.at < messages->n; w.at++)
        rc = prepare_message(&w, &messages->items[w.at], &m[w.at]);
    if (!m)
        rc = -ENOMEM;
    if (!rc && rules->order_results)
        order_results(m, messages->n);
    if (rc)
        prepared_free(out);
    return rc;
}

void prepared_free(struct prepared *p)
{
    for (struct prepared_doc *d = p->docs; d; d = d->next)
        json_free(d->doc);
    for (struct prepared_block *b = p->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    *p = (struct prepared){.blocks = NULL};
}
