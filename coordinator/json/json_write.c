/* A thin cover over yajl_gen: one sticky status, and doubles that read back as they were. */
#include "coordinator/json/json_write.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yajl/yajl_gen.h>

struct json_out {
    yajl_gen g;
    yajl_gen_status bad; /* the first that was not ok */
};

struct json_out *json_out_new(int indent)
{
    struct json_out *o = calloc(1, sizeof *o);

    if (!o || !(o->g = yajl_gen_alloc(NULL))) {
        free(o);
        return NULL;
    }
    yajl_gen_config(o->g, yajl_gen_validate_utf8, 1);
    yajl_gen_config(o->g, yajl_gen_beautify, indent);
    yajl_gen_config(o->g, yajl_gen_indent_string, "  ");
    return o;
}

void json_out_free(struct json_out *o)
{
    if (!o)
        return;
    yajl_gen_free(o->g);
    free(o);
}

static void note(struct json_out *o, yajl_gen_status s)
{
    if (o->bad == yajl_gen_status_ok)
        o->bad = s == yajl_gen_generation_complete ? yajl_gen_status_ok : s;
}

void json_open_object(struct json_out *o)
{
    note(o, yajl_gen_map_open(o->g));
}

void json_close_object(struct json_out *o)
{
    note(o, yajl_gen_map_close(o->g));
}

void json_open_array(struct json_out *o)
{
    note(o, yajl_gen_array_open(o->g));
}

void json_close_array(struct json_out *o)
{
    note(o, yajl_gen_array_close(o->g));
}

void json_key(struct json_out *o, const char *key)
{
    json_put_str(o, key);
}

void json_put_null(struct json_out *o)
{
    note(o, yajl_gen_null(o->g));
}

void json_put_bool(struct json_out *o, int truth)
{
    note(o, yajl_gen_bool(o->g, truth));
}

void json_put_i64(struct json_out *o, int64_t v)
{
    note(o, yajl_gen_integer(o->g, v));
}

void json_put_u64(struct json_out *o, uint64_t v)
{
    char s[24];

    json_put_number(o, s, (size_t)snprintf(s, sizeof s, "%llu", (unsigned long long)v));
}

void json_put_f64(struct json_out *o, double v)
{
    char s[32];
    int n;

    if (!isfinite(v)) {
        json_put_null(o);
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        n = snprintf(s, sizeof s, "%.*g", digits, v);
        if (strtod(s, NULL) == v)
            break;
    }
    json_put_number(o, s, (size_t)n);
}

void json_put_number(struct json_out *o, const char *text, size_t n)
{
    note(o, yajl_gen_number(o->g, text, n));
}

void json_put_str(struct json_out *o, const char *s)
{
    json_put_strn(o, s, strlen(s));
}

void json_put_strn(struct json_out *o, const char *s, size_t n)
{
    note(o, yajl_gen_string(o->g, (const unsigned char *)s, n));
}

int json_text(struct json_out *o, const char **text, size_t *n, struct err *e)
{
    const unsigned char *buf;

    if (o->bad == yajl_gen_invalid_string)
        return err_set(e, -EINVAL, "a string for JSON is not UTF-8");
    if (o->bad == yajl_max_depth_exceeded)
        return err_set(e, -EINVAL, "JSON to be written is nested too deeply");
    if (o->bad != yajl_gen_status_ok || yajl_gen_get_buf(o->g, &buf, n) != yajl_gen_status_ok)
        return err_set(e, -EINVAL, "JSON to be written is not well formed (writer status %d)",
                       (int)o->bad);
    *text = (const char *)buf;
    return 0;
}
