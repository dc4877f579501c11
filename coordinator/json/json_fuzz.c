/* Any bytes as JSON: refused with one line, or a tree that, written and read again, is the same. */

/* FUZZ: coordinator/json/json.c coordinator/json/json_write.c coordinator/model/utf8.c shm/err.c
 * FUZZ: -lyajl
 */
#include "coordinator/json/json.h"

#include <stdlib.h>
#include <string.h>

#include "coordinator/json/json_write.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define MUST(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond))                                                                               \
            abort();                                                                               \
    } while (0)

enum { DEPTH = 100 }; /* the writer's limit is near 128, so recursion is fine here */

static void write(struct json_out *o, const struct json *j)
{
    int64_t i;
    uint64_t u;
    double f;

    switch (j->kind) {
    case JSON_NULL:
        json_put_null(o);
        break;
    case JSON_BOOL:
        json_put_bool(o, j->truth);
        break;
    case JSON_NUMBER:
        MUST(!j->text[j->n] && strlen(j->text) == j->n && !json_f64(j, &f));
        (void)json_i64(j, &i);
        (void)json_u64(j, &u);
        json_put_number(o, j->text, j->n);
        break;
    case JSON_STRING:
        MUST(!j->text[j->n]);
        json_put_strn(o, j->text, j->n);
        break;
    case JSON_ARRAY:
        json_open_array(o);
        for (size_t k = 0; k < j->n; k++)
            write(o, json_at(j, k));
        json_close_array(o);
        break;
    case JSON_OBJECT:
        json_open_object(o);
        for (size_t k = 0; k < j->n; k++) {
            MUST(json_get(j, j->items[k].key) || memchr(j->items[k].key, 0, j->items[k].key_n));
            json_put_strn(o, j->items[k].key, j->items[k].key_n);
            write(o, &j->items[k]);
        }
        json_close_object(o);
    }
}

static void same(const struct json *a, const struct json *b)
{
    MUST(a->kind == b->kind && a->n == b->n && a->truth == b->truth && a->key_n == b->key_n);
    MUST(!a->key == !b->key && (!a->key || !memcmp(a->key, b->key, a->key_n)));
    if (a->kind == JSON_NUMBER || a->kind == JSON_STRING)
        MUST(!memcmp(a->text, b->text, a->n));
    if (a->kind == JSON_ARRAY || a->kind == JSON_OBJECT)
        for (size_t k = 0; k < a->n; k++)
            same(&a->items[k], &b->items[k]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct json_limits limits = {.depth = DEPTH};
    struct json_doc *d = NULL, *again = NULL;
    struct json_out *o;
    struct err e = {0};
    const char *text;
    size_t text_n;

    if (json_parse("fuzz", (const char *)data, n, &limits, &d, &e)) {
        MUST(e.code && !strncmp(e.msg, "fuzz: ", 6) && !strchr(e.msg, '\n') && !d);
        return 0;
    }
    o = json_out_new(n & 1);
    MUST(o);
    write(o, json_root(d));
    MUST(json_text(o, &text, &text_n, &e) == 0);
    MUST(json_parse("again", text, text_n, NULL, &again, &e) == 0);
    same(json_root(d), json_root(again));
    json_out_free(o);
    json_free(d);
    json_free(again);
    return 0;
}
