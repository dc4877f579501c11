/* Two schemas as one. What has no merged form is refused by name, never dropped. */
#include "coordinator/sample/grammar/schema_merge.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/sample/grammar.h"

enum { MERGE_BYTES_MAX = 64 << 20 };

struct made {
    struct made *next;
    _Alignas(16) char data[];
};

void schemas_free(struct merge *m)
{
    for (struct made *p = m->memory, *next; p; p = next) {
        next = p->next;
        free(p);
    }
    m->memory = NULL;
}

static void *take(struct merge *m, size_t n)
{
    struct made *p = NULL;

    m->bytes += n;
    if (m->bytes <= MERGE_BYTES_MAX)
        p = calloc(1, sizeof *p + n);
    if (!p) {
        rules_fail(m->r, -E2BIG, "too large: putting schemas together needs more than %d MiB", MERGE_BYTES_MAX >> 20);
        return NULL;
    }
    p->next = m->memory;
    m->memory = p;
    return p->data;
}

static int is(const struct json *j, const char *key)
{
    return j->key_n == strlen(key) && !memcmp(j->key, key, j->key_n);
}

int json_same(const struct json *a, const struct json *b)
{
    double x, y;

    if (a->kind != b->kind || (a->kind != JSON_NUMBER && a->n != b->n))
        return 0;
    switch (a->kind) {
    case JSON_NULL:
        return 1;
    case JSON_BOOL:
        return !a->truth == !b->truth;
    case JSON_NUMBER:
        return (a->n == b->n && !memcmp(a->text, b->text, a->n)) || (!json_f64(a, &x) && !json_f64(b, &y) && x == y);
    case JSON_STRING:
        return !memcmp(a->text, b->text, a->n);
    case JSON_ARRAY:
        for (size_t i = 0; i < a->n; i++)
            if (!json_same(&a->items[i], &b->items[i]))
                return 0;
        return 1;
    default:
        for (size_t i = 0; i < a->n; i++) {
            const struct json *other = json_get(b, a->items[i].key);
            if (!other || !json_same(&a->items[i], other))
                return 0;
        }
        return 1;
    }
}

int schema_is_note(const char *key, size_t n)
{
    static const char *const note[] = {"title", "description", "default", "examples", "example", "$schema", "$id", "id",
                                       "$comment", "$anchor", "$defs", "definitions", "deprecated", "readOnly",
                                       "writeOnly", "contentMediaType", "contentEncoding", "discriminator", "strict"};

    for (size_t i = 0; i < sizeof note / sizeof *note; i++)
        if (strlen(note[i]) == n && !memcmp(note[i], key, n))
            return 1;
    return n > 2 && !memcmp(key, "x-", 2);
}

/* ---- $ref ---- */

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
}

/* One step of a JSON pointer, its escapes undone. */
static size_t step(const char *p, const char *end, char *out, size_t cap, const char **next)
{
    size_t n = 0;

    for (; p < end && *p != '/'; p++) {
        char c = *p;

        if (c == '~' && p + 1 < end && (p[1] == '0' || p[1] == '1'))
            c = *++p == '0' ? '~' : '/';
        else if (c == '%' && p + 2 < end && hex(p[1]) >= 0 && hex(p[2]) >= 0) {
            c = (char)(hex(p[1]) << 4 | hex(p[2]));
            p += 2;
        }
        if (n + 1 < cap)
            out[n++] = c;
    }
    out[n] = 0;
    *next = p;
    return n;
}

const struct json *schemas_ref(struct merge *m, const char *ref, size_t n, const char *where)
{
    const struct json *j = m->root;
    const char *p = ref + 1, *end = ref + n;
    char key[512];

    if (!n || *ref != '#' || (n > 1 && ref[1] != '/')) {
        rules_fail(m->r, -ENOTSUP, "%s: '$ref' to '%.200s': only \"#\" and \"#/...\" are supported", where, ref);
        return NULL;
    }
    while (j && p < end) {
        step(p + 1, end, key, sizeof key, &p);
        if (j->kind == JSON_ARRAY) {
            char *rest;
            unsigned long i = strtoul(key, &rest, 10);
            j = *key && !*rest ? json_at(j, i) : NULL;
        } else {
            j = json_get(j, key);
        }
    }
    if (!j)
        rules_fail(m->r, -EINVAL, "%s: '$ref' to '%.200s', which is not there", where, ref);
    return j;
}

/* ---- objects made of others ---- */

struct draft { /* an object under construction */
    struct json *item;
    size_t n, cap;
};

static void put(struct merge *m, struct draft *d, const char *key, struct json value)
{
    value.key = key;
    value.key_n = strlen(key);
    if (d->n == d->cap) {
        size_t cap = d->cap ? 2 * d->cap : 16;
        struct json *p = take(m, cap * sizeof *p);

        if (!p)
            return;
        if (d->n)
            memcpy(p, d->item, d->n * sizeof *p);
        d->item = p;
        d->cap = cap;
    }
    d->item[d->n++] = value;
}

static struct json object_of(const struct draft *d)
{
    return (struct json){.kind = JSON_OBJECT, .n = d->n, .items = d->item};
}

static const struct json *keep(struct merge *m, struct json j)
{
    struct json *p = take(m, sizeof *p);

    if (p)
        *p = j;
    return p;
}

const struct json *schemas_without(struct merge *m, const struct json *s, const char *key)
{
    struct draft d = {0};

    for (size_t i = 0; i < s->n; i++)
        if (!is(&s->items[i], key))
            put(m, &d, s->items[i].key, s->items[i]);
    return keep(m, object_of(&d));
}

/* {"allOf": [a, b]} */
static struct json all_of(struct merge *m, const struct json *a, const struct json *b)
{
    struct json *two = take(m, 2 * sizeof *two);
    struct draft d = {0};

    if (!two)
        return (struct json){.kind = JSON_BOOL, .truth = 1};
    two[0] = *a;
    two[1] = *b;
    two[0].key = two[1].key = NULL;
    put(m, &d, "allOf", (struct json){.kind = JSON_ARRAY, .n = 2, .items = two});
    return object_of(&d);
}

/* Those of a's items that b has too. */
static struct json common(struct merge *m, const struct json *a, const struct json *b)
{
    struct draft d = {0};

    for (size_t i = 0; i < a->n; i++)
        for (size_t j = 0; j < b->n; j++)
            if (json_same(&a->items[i], &b->items[j])) {
                put(m, &d, "", a->items[i]);
                d.item[d.n - 1].key = NULL;
                break;
            }
    return (struct json){.kind = JSON_ARRAY, .n = d.n, .items = d.item};
}

static struct json joined(struct merge *m, const struct json *a, const struct json *b)
{
    struct draft d = {0};

    for (size_t i = 0; i < a->n; i++)
        put(m, &d, "", a->items[i]);
    for (size_t i = 0; i < b->n; i++)
        put(m, &d, "", b->items[i]);
    return (struct json){.kind = JSON_ARRAY, .n = d.n, .items = d.item};
}

static int allows(const struct json *list_or_one, const char *type)
{
    if (list_or_one->kind == JSON_STRING)
        return json_is(list_or_one, type) || (json_is(list_or_one, "number") && !strcmp(type, "integer"));
    for (size_t i = 0; i < list_or_one->n; i++)
        if (allows(&list_or_one->items[i], type))
            return 1;
    return 0;
}

static struct json types(struct merge *m, const struct json *a, const struct json *b)
{
    static const char *const all[] = {"object", "array", "string", "number", "integer", "boolean", "null"};
    struct draft d = {0};
    int number = 0;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!allows(a, all[i]) || !allows(b, all[i]) || (number && !strcmp(all[i], "integer")))
            continue;
        number |= !strcmp(all[i], "number");
        put(m, &d, "", (struct json){.kind = JSON_STRING, .text = all[i], .n = strlen(all[i])});
    }
    return (struct json){.kind = JSON_ARRAY, .n = d.n, .items = d.item};
}

static struct json properties(struct merge *m, const struct json *a, const struct json *b)
{
    struct draft d = {0};

    for (size_t i = 0; i < a->n; i++) {
        const struct json *other = json_get(b, a->items[i].key);
        put(m, &d, a->items[i].key, other && other != &a->items[i] ? all_of(m, &a->items[i], other) : a->items[i]);
    }
    for (size_t i = 0; i < b->n; i++)
        if (!json_get(a, b->items[i].key))
            put(m, &d, b->items[i].key, b->items[i]);
    return object_of(&d);
}

/* Each of a's with each of b's. */
static struct json pairs(struct merge *m, const struct json *a, const struct json *b)
{
    struct draft d = {0};

    for (size_t i = 0; i < a->n && !rules_failed(m->r); i++)
        for (size_t j = 0; j < b->n && !rules_failed(m->r); j++)
            put(m, &d, "", all_of(m, &a->items[i], &b->items[j]));
    return (struct json){.kind = JSON_ARRAY, .n = d.n, .items = d.item};
}

/* additionalProperties of one side speak of the other's properties too: only where those are none is the union of
 * both what both say. */
static void check_closed(struct merge *m, const struct json *a, const struct json *b, const char *where)
{
    const struct json *more = json_get(a, "additionalProperties"), *mine = json_get(a, "properties"),
                      *others = json_get(b, "properties");

    if (!more || (more->kind == JSON_BOOL && more->truth) || !others || others->kind != JSON_OBJECT)
        return;
    for (size_t i = 0; i < others->n; i++)
        if (!json_get(mine, others->items[i].key))
            rules_fail(m->r, -ENOTSUP, "%s: 'additionalProperties' beside another schema's property '%.100s' is not supported",
                       where, others->items[i].key);
}

static int larger(const struct json *a, const struct json *b)
{
    double x = 0, y = 0;

    json_f64(a, &x);
    json_f64(b, &y);
    return x > y;
}

/* a and b are members of one name, both there. */
static struct json member(struct merge *m, const struct json *a, const struct json *b, const char *where)
{
    static const char *const least[] = {"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"};
    static const char *const most[] = {"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"};
    int lists = a->kind == JSON_ARRAY && b->kind == JSON_ARRAY, objects = a->kind == JSON_OBJECT && b->kind == JSON_OBJECT;

    for (size_t i = 0; i < sizeof least / sizeof *least; i++) {
        if (is(a, least[i]))
            return larger(a, b) ? *a : *b;
        if (is(a, most[i]))
            return larger(a, b) ? *b : *a;
    }
    if (is(a, "type"))
        return types(m, a, b);
    if (is(a, "enum") && lists)
        return common(m, a, b);
    if (is(a, "required") && lists)
        return joined(m, a, b);
    if (is(a, "properties") && objects)
        return properties(m, a, b);
    if ((is(a, "anyOf") || is(a, "oneOf")) && lists)
        return pairs(m, a, b);
    if (is(a, "items") || is(a, "additionalProperties"))
        return all_of(m, a, b);
    if (!json_same(a, b) && !schema_is_note(a->key, a->key_n))
        rules_fail(m->r, -ENOTSUP, "%s: two different '%.100s' that must hold together are not supported", where, a->key);
    return *a;
}

const struct json *schemas_both(struct merge *m, const struct json *a, const struct json *b, const char *where)
{
    struct draft d = {0};

    if (a->kind == JSON_BOOL || b->kind == JSON_BOOL)
        return a->kind == JSON_BOOL && a->truth ? b : a->kind == JSON_BOOL ? a : b->truth ? a : b;
    if (a->kind != JSON_OBJECT || b->kind != JSON_OBJECT) {
        rules_fail(m->r, -EINVAL, "%s: a schema is an object or a boolean", where);
        return NULL;
    }
    check_closed(m, a, b, where);
    check_closed(m, b, a, where);
    for (size_t i = 0; i < a->n && !rules_failed(m->r); i++) {
        const struct json *other = json_get(b, a->items[i].key);
        put(m, &d, a->items[i].key, other ? member(m, &a->items[i], other, where) : a->items[i]);
    }
    for (size_t i = 0; i < b->n; i++)
        if (!json_get(a, b->items[i].key))
            put(m, &d, b->items[i].key, b->items[i]);
    return rules_failed(m->r) ? NULL : keep(m, object_of(&d));
}

const struct json *schemas_flat(struct merge *m, const struct json *s, const char *where)
{
    const struct json *ref, *all;

    if (m->depth >= GRAMMAR_NESTING_MAX) {
        rules_fail(m->r, -E2BIG, "%s: '$ref' and 'allOf' nested too deeply, or within themselves", where);
        return NULL;
    }
    m->depth++;
    while (s && s->kind == JSON_OBJECT && (ref = json_get(s, "$ref")) && ref->kind == JSON_STRING) {
        const struct json *to = schemas_ref(m, ref->text, ref->n, where), *rest = to ? schemas_without(m, s, "$ref") : NULL;
        to = rest ? schemas_flat(m, to, where) : NULL;
        s = to ? schemas_both(m, to, rest, where) : NULL;
    }
    while (s && s->kind == JSON_OBJECT && (all = json_get(s, "allOf")) && all->kind == JSON_ARRAY) {
        s = schemas_without(m, s, "allOf");
        for (size_t i = 0; i < all->n && s; i++) {
            const struct json *one = schemas_flat(m, &all->items[i], where);
            s = one ? schemas_both(m, s, one, where) : NULL;
        }
    }
    m->depth--;
    return rules_failed(m->r) ? NULL : s;
}
