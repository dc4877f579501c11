/* One place for "wanted this, found that", so that all refusals read alike. */
#include "coordinator/serve/api/fields.h"

#include <string.h>

const struct json *field_any(const struct json *j, const char *key)
{
    const struct json *v = json_get(j, key);

    return v && v->kind != JSON_NULL ? v : NULL;
}

static const char *kind_name(const struct json *v)
{
    static const char *const names[] = {"null", "a boolean", "a number", "a string", "an array", "an object"};

    return names[v->kind];
}

static int wrong(struct fault *f, const char *key, const char *wanted, const struct json *v)
{
    if (v->kind == JSON_NUMBER)
        fault_set(f, 400, key, "%s: %s is wanted, not %.40s", key, wanted, v->text);
    else
        fault_set(f, 400, key, "%s: %s is wanted, not %s", key, wanted, kind_name(v));
    return 0;
}

int field_bool(const struct json *j, const char *key, int *out, struct fault *f)
{
    const struct json *v = field_any(j, key);

    if (!v)
        return 0;
    if (v->kind != JSON_BOOL)
        return wrong(f, key, "a boolean", v);
    *out = v->truth;
    return 1;
}

int field_i64(const struct json *j, const char *key, int64_t low, int64_t high, int64_t *out, struct fault *f)
{
    const struct json *v = field_any(j, key);
    int64_t x;

    if (!v)
        return 0;
    if (v->kind != JSON_NUMBER || json_i64(v, &x))
        return wrong(f, key, "a whole number", v);
    if (x < low || x > high) {
        fault_set(f, 400, key, "%s: %lld is out of range, %lld to %lld", key, (long long)x, (long long)low,
                  (long long)high);
        return 0;
    }
    *out = x;
    return 1;
}

int field_f64(const struct json *j, const char *key, double low, double high, double *out, struct fault *f)
{
    const struct json *v = field_any(j, key);
    double x;

    if (!v)
        return 0;
    if (v->kind != JSON_NUMBER || json_f64(v, &x))
        return wrong(f, key, "a number", v);
    if (!(x >= low && x <= high)) {
        fault_set(f, 400, key, "%s: %g is out of range, %g to %g", key, x, low, high);
        return 0;
    }
    *out = x;
    return 1;
}

int field_text(const struct json *j, const char *key, const char **out, struct fault *f)
{
    const struct json *v = field_any(j, key);

    if (!v)
        return 0;
    if (v->kind != JSON_STRING)
        return wrong(f, key, "a string", v);
    if (memchr(v->text, 0, v->n)) {
        fault_set(f, 400, key, "%s: a text without the character U+0000 is wanted", key);
        return 0;
    }
    *out = v->text;
    return 1;
}

int field_array(const struct json *j, const char *key, const struct json **out, struct fault *f)
{
    const struct json *v = field_any(j, key);

    if (!v)
        return 0;
    if (v->kind != JSON_ARRAY)
        return wrong(f, key, "an array", v);
    *out = v;
    return 1;
}

int field_object(const struct json *j, const char *key, const struct json **out, struct fault *f)
{
    const struct json *v = field_any(j, key);

    if (!v)
        return 0;
    if (v->kind != JSON_OBJECT)
        return wrong(f, key, "an object", v);
    *out = v;
    return 1;
}
