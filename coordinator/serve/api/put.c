/* Members of the object that is open. */
#include "coordinator/serve/api/put.h"

#include <stdlib.h>
#include <string.h>

void put_any(struct json_out *o, const struct json *v)
{
    switch (v->kind) {
    case JSON_NULL:
        json_put_null(o);
        return;
    case JSON_BOOL:
        json_put_bool(o, v->truth);
        return;
    case JSON_NUMBER:
        json_put_number(o, v->text, v->n);
        return;
    case JSON_STRING:
        json_put_strn(o, v->text, v->n);
        return;
    case JSON_ARRAY:
        json_open_array(o);
        for (size_t i = 0; i < v->n; i++)
            put_any(o, &v->items[i]);
        json_close_array(o);
        return;
    case JSON_OBJECT:
        json_open_object(o);
        for (size_t i = 0; i < v->n; i++) {
            json_put_strn(o, v->items[i].key, v->items[i].key_n);
            put_any(o, &v->items[i]);
        }
        json_close_object(o);
        return;
    }
}

void put_text(struct json_out *o, const char *key, const char *s)
{
    json_key(o, key);
    json_put_str(o, s);
}

void put_value(struct json_out *o, const char *key, const struct json *v)
{
    json_key(o, key);
    put_any(o, v);
}

void put_bytes(struct json_out *o, const char *key, const char *s, size_t n)
{
    json_key(o, key);
    json_put_strn(o, s, n);
}

void put_u64(struct json_out *o, const char *key, uint64_t v)
{
    json_key(o, key);
    json_put_u64(o, v);
}

void put_i64(struct json_out *o, const char *key, int64_t v)
{
    json_key(o, key);
    json_put_i64(o, v);
}

void put_f64(struct json_out *o, const char *key, double v)
{
    json_key(o, key);
    json_put_f64(o, v);
}

void put_bool(struct json_out *o, const char *key, int v)
{
    json_key(o, key);
    json_put_bool(o, v);
}

void put_null(struct json_out *o, const char *key)
{
    json_key(o, key);
    json_put_null(o);
}

void put_object(struct json_out *o, const char *key)
{
    json_key(o, key);
    json_open_object(o);
}

void put_array(struct json_out *o, const char *key)
{
    json_key(o, key);
    json_open_array(o);
}

void put_two(struct json_out *o, const char *a, size_t a_n, const char *b, size_t b_n)
{
    char *both = malloc(a_n + b_n + 1);

    if (!both) {
        json_put_strn(o, a, a_n);
        return;
    }
    memcpy(both, a, a_n);
    if (b_n)
        memcpy(both + a_n, b, b_n);
    json_put_strn(o, both, a_n + b_n);
    free(both);
}
