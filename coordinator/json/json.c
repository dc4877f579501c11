/* A tree over yajl's events. yajl checks the grammar; here are the limits, the memory and what yajl
 * leaves open (strict UTF-8, halves of surrogate pairs). No recursion: depth is a counter. */
#include "coordinator/json/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yajl/yajl_parse.h>

#include "coordinator/model/utf8.h"

enum { CHUNK_BYTES = 1 << 16 };

struct chunk {
    struct chunk *next;
    size_t used, cap;
    _Alignas(16) char data[];
};

struct json_doc {
    struct json root;
    struct chunk *chunks;
};

/* a container that is being read: its items are the values from stack[first] on */
struct open {
    size_t first;
    const char *key; /* of the container itself */
    size_t key_n;
    enum json_kind kind;
};

struct reader {
    struct json_doc *doc;
    const char *name;
    struct err *e;
    struct json *stack;
    size_t n, cap;
    struct open *open;
    size_t depth, depth_cap, depth_max;
    size_t values, values_max;
    const char *key; /* of the next value */
    size_t key_n;
};

static void *take(struct json_doc *d, size_t n)
{
    struct chunk *c = d->chunks;
    void *p;

    n = (n + 15) & ~(size_t)15;
    if (!c || c->cap - c->used < n) {
        size_t cap = n > CHUNK_BYTES ? n : CHUNK_BYTES;

        if (!(c = malloc(sizeof *c + cap)))
            return NULL;
        c->next = d->chunks;
        c->used = 0;
        c->cap = cap;
        d->chunks = c;
    }
    p = c->data + c->used;
    c->used += n;
    return p;
}

static int no_memory(struct reader *r)
{
    err_set(r->e, -ENOMEM, "%s: no memory for its values", r->name);
    return 0; /* yajl's word for stop */
}

static const char *copy(struct json_doc *d, const void *s, size_t n)
{
    char *p = take(d, n + 1);

    if (p) {
        memcpy(p, s, n);
        p[n] = 0;
    }
    return p;
}

static int add(struct reader *r, struct json v)
{
    if (r->values++ == r->values_max) {
        err_set(r->e, -E2BIG, "%s: more than %zu values", r->name, r->values_max);
        return 0;
    }
    if (r->n == r->cap) {
        size_t cap = r->cap ? 2 * r->cap : 64;
        struct json *s = realloc(r->stack, cap * sizeof *s);

        if (!s)
            return no_memory(r);
        r->stack = s;
        r->cap = cap;
    }
    v.key = r->key;
    v.key_n = r->key_n;
    r->key = NULL;
    r->key_n = 0;
    r->stack[r->n++] = v;
    return 1;
}

static int on_null(void *r)
{
    return add(r, (struct json){.kind = JSON_NULL});
}

static int on_bool(void *r, int truth)
{
    return add(r, (struct json){.kind = JSON_BOOL, .truth = truth});
}

static int add_text(struct reader *r, enum json_kind kind, const void *s, size_t n)
{
    const char *text = copy(r->doc, s, n);

    return text ? add(r, (struct json){.kind = kind, .text = text, .n = n}) : no_memory(r);
}

static int on_number(void *r, const char *s, size_t n)
{
    return add_text(r, JSON_NUMBER, s, n);
}

static int on_string(void *r, const unsigned char *s, size_t n)
{
    return add_text(r, JSON_STRING, s, n);
}

static int on_key(void *ctx, const unsigned char *s, size_t n)
{
    struct reader *r = ctx;

    r->key = copy(r->doc, s, n);
    r->key_n = n;
    return r->key ? 1 : no_memory(r);
}

static int begin(struct reader *r, enum json_kind kind)
{
    if (r->depth == r->depth_max) {
        err_set(r->e, -EINVAL, "%s: nested too deeply, at most %zu levels work", r->name,
                r->depth_max);
        return 0;
    }
    if (r->depth == r->depth_cap) {
        size_t cap = r->depth_cap ? 2 * r->depth_cap : 16;
        struct open *o = realloc(r->open, cap * sizeof *o);

        if (!o)
            return no_memory(r);
        r->open = o;
        r->depth_cap = cap;
    }
    r->open[r->depth++] = (struct open){r->n, r->key, r->key_n, kind};
    r->key = NULL;
    return 1;
}

static int on_begin_object(void *r)
{
    return begin(r, JSON_OBJECT);
}

static int on_begin_array(void *r)
{
    return begin(r, JSON_ARRAY);
}

/* The items move from the stack to their place; the container is a value of the level above. */
static int on_end(void *ctx)
{
    struct reader *r = ctx;
    struct open o = r->open[--r->depth];
    size_t n = r->n - o.first;
    struct json *items = NULL;

    if (n) {
        if (!(items = take(r->doc, n * sizeof *items)))
            return no_memory(r);
        memcpy(items, r->stack + o.first, n * sizeof *items);
    }
    r->n = o.first;
    r->key = o.key;
    r->key_n = o.key_n;
    return add(r, (struct json){.kind = o.kind, .items = items, .n = n});
}

static int hex4(const char *s)
{
    int v = 0;

    for (int i = 0; i < 4; i++) {
        char c = s[i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0)
            return -1;
        v = v << 4 | d;
    }
    return v;
}

/* yajl joins any two \u escapes of which the first is the first half of a pair, and makes bytes
 * that are not UTF-8 of a second half alone. So lone halves are rewritten before it sees them, to
 * \uFFFD: the same length, so that offsets stay true. Returns text, or a copy that is to be freed;
 * NULL: no memory. */
static char *mend_surrogates(const char *text, size_t n)
{
    char *mended = NULL;

    for (size_t i = 0; i + 1 < n; i++) {
        int u;

        if (text[i] != '\\')
            continue;
        if (text[i + 1] != 'u' || n - i < 6 || (u = hex4(text + i + 2)) < 0) {
            i++;
            continue;
        }
        if (u >= 0xD800 && u < 0xDC00 && n - i >= 12 && text[i + 6] == '\\' && text[i + 7] == 'u' &&
            (hex4(text + i + 8) & ~0x3FF) == 0xDC00) {
            i += 11;
            continue;
        }
        if (u >= 0xD800 && u < 0xE000) {
            if (!mended) {
                if (!(mended = malloc(n)))
                    return NULL;
                memcpy(mended, text, n);
            }
            memcpy(mended + i + 2, "FFFD", 4);
        }
        i += 5;
    }
    return mended ? mended : (char *)text;
}

/* yajl checks that bytes look like UTF-8, not surrogates and overlong forms. */
static int check_utf8(const char *name, const char *text, size_t n, struct err *e)
{
    for (size_t p = 0, len; p < n; p += len)
        if (utf8_next(text + p, n - p, &len) != UTF8_OK)
            return err_set(e, -EINVAL, "%s: byte %zu: not JSON: not UTF-8", name, p);
    return 0;
}

/* yajl's message: its first line, without the newline. */
static int refuse(struct reader *r, yajl_handle h, size_t at)
{
    unsigned char *m = yajl_get_error(h, 0, NULL, 0);
    int rc;

    rc = err_set(r->e, -EINVAL, "%s: byte %zu: not JSON: %.*s", r->name, at,
                 m ? (int)strcspn((char *)m, "\n") : 13, m ? (char *)m : "no memory left");
    if (m)
        yajl_free_error(h, m);
    return rc;
}

static int is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

size_t json_value_end(const char *text, size_t n, size_t p)
{
    size_t depth = 0;
    int in_string = 0;

    if (!strchr("\"[{", text[p]) || !text[p]) { /* a number or a word */
        while (p < n && !is_space(text[p]) && !strchr("\"[]{},:", text[p]))
            p++;
        return p;
    }
    for (; p < n; p++) {
        char c = text[p];

        if (in_string) {
            p += c == '\\';
            in_string = c != '"';
        } else {
            in_string = c == '"';
            depth += c == '{' || c == '[';
            depth -= c == '}' || c == ']';
        }
        if (!in_string && !depth)
            return p + 1;
    }
    return n;
}

/* yajl takes the beginning of a token behind the value for nothing: '7 "', '[1] tr'. */
static int check_end(struct reader *r, const char *text, size_t n)
{
    size_t p = 0;

    while (p < n && is_space(text[p]))
        p++;
    for (p = json_value_end(text, n, p); p < n; p++)
        if (!is_space(text[p]))
            return err_set(r->e, -EINVAL, "%s: byte %zu: not JSON: something behind the value", r->name, p);
    return 0;
}

static int read_events(struct reader *r, const char *text, size_t n)
{
    static const yajl_callbacks on = {
        .yajl_null = on_null,
        .yajl_boolean = on_bool,
        .yajl_number = on_number,
        .yajl_string = on_string,
        .yajl_start_map = on_begin_object,
        .yajl_map_key = on_key,
        .yajl_end_map = on_end,
        .yajl_start_array = on_begin_array,
        .yajl_end_array = on_end,
    };
    yajl_handle h = yajl_alloc(&on, NULL, r);
    yajl_status s;
    size_t at;
    int rc = 0;

    if (!h)
        return err_set(r->e, -ENOMEM, "%s: no memory to read it", r->name);
    s = yajl_parse(h, (const unsigned char *)text, n);
    at = yajl_get_bytes_consumed(h);
    if (s == yajl_status_ok) {
        s = yajl_complete_parse(h);
        at = n;
    }
    if (s == yajl_status_client_canceled)
        rc = r->e && r->e->code ? r->e->code : -EINVAL; /* the line is written */
    else if (s != yajl_status_ok)
        rc = refuse(r, h, at);
    else
        rc = check_end(r, text, n);
    yajl_free(h);
    return rc;
}

int json_parse(const char *name, const char *text, size_t n, const struct json_limits *limits,
               struct json_doc **out, struct err *e)
{
    size_t bytes = limits && limits->bytes ? limits->bytes : JSON_BYTES_MAX;
    struct reader r = {.name = name, .e = e};
    struct json_doc *d = NULL;
    char *mended = NULL;
    int rc;

    r.depth_max = limits && limits->depth ? limits->depth : JSON_DEPTH_MAX;
    r.values_max = limits && limits->values ? limits->values : SIZE_MAX;
    if (n > bytes)
        return err_set(e, -E2BIG, "%s: %zu bytes of JSON, at most %zu work", name, n, bytes);
    if ((rc = check_utf8(name, text, n, e)) < 0)
        return rc;
    d = calloc(1, sizeof *d);
    mended = d ? mend_surrogates(text, n) : NULL;
    if (!mended && n) {
        free(d);
        return err_set(e, -ENOMEM, "%s: no memory for %zu bytes", name, n);
    }
    r.doc = d;
    if ((rc = read_events(&r, mended, n)) == 0) {
        d->root = r.stack[0]; /* yajl accepts exactly one value */
        *out = d;
        d = NULL; /* handed over */
    }
    if (mended != text)
        free(mended);
    free(r.stack);
    free(r.open);
    json_free(d);
    return rc;
}

int json_load(const char *path, const struct json_limits *limits, struct json_doc **out,
              struct err *e)
{
    size_t most = limits && limits->bytes ? limits->bytes : JSON_BYTES_MAX, n = 0, cap = 0, got;
    char *text = NULL, *more;
    FILE *f = fopen(path, "rb");
    int rc;

    if (!f)
        return err_set(e, -errno, "%s: cannot open: %s", path, strerror(errno));
    do { /* by reading, not by size: a pipe has none */
        if (n == cap) {
            cap = cap ? 2 * cap : 1 << 16;
            if (!(more = realloc(text, cap))) {
                rc = err_set(e, -ENOMEM, "%s: no memory to read it", path);
                goto done;
            }
            text = more;
        }
        got = fread(text + n, 1, cap - n, f);
        n += got;
    } while (got && n <= most);
    if (ferror(f))
        rc = err_set(e, -EIO, "%s: cannot read: %s", path, strerror(errno));
    else
        rc = json_parse(path, text, n, limits, out, e);
done:
    fclose(f);
    free(text);
    return rc;
}

void json_free(struct json_doc *d)
{
    if (!d)
        return;
    for (struct chunk *c = d->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(d);
}

const struct json *json_root(const struct json_doc *d)
{
    return &d->root;
}

const struct json *json_get(const struct json *j, const char *key)
{
    size_t n = strlen(key);

    if (!j || j->kind != JSON_OBJECT)
        return NULL;
    for (size_t i = j->n; i-- > 0;)
        if (j->items[i].key_n == n && !memcmp(j->items[i].key, key, n))
            return &j->items[i];
    return NULL;
}

const struct json *json_at(const struct json *j, size_t i)
{
    return j && j->kind == JSON_ARRAY && i < j->n ? &j->items[i] : NULL;
}

int json_is(const struct json *j, const char *s)
{
    return j && j->kind == JSON_STRING && j->n == strlen(s) && !memcmp(j->text, s, j->n);
}

int json_f64(const struct json *j, double *out)
{
    if (!j || j->kind != JSON_NUMBER)
        return -EINVAL;
    *out = strtod(j->text, NULL);
    return 0;
}

/* Digits alone are read as integers, so that all 64 bits count; the rest by way of a double. */
static int plain(const struct json *j)
{
    return strspn(j->text, "-0123456789") == j->n;
}

int json_i64(const struct json *j, int64_t *out)
{
    double v;

    if (json_f64(j, &v))
        return -EINVAL;
    if (plain(j)) {
        errno = 0;
        *out = strtoll(j->text, NULL, 10);
        return errno ? -EINVAL : 0;
    }
    if (!(v >= -0x1p63 && v < 0x1p63) || v != floor(v))
        return -EINVAL;
    *out = (int64_t)v;
    return 0;
}

int json_u64(const struct json *j, uint64_t *out)
{
    double v;

    if (json_f64(j, &v) || v < 0)
        return -EINVAL;
    if (plain(j)) {
        errno = 0;
        *out = strtoull(j->text, NULL, 10);
        return errno ? -EINVAL : 0;
    }
    if (!(v < 0x1p64) || v != floor(v))
        return -EINVAL;
    *out = (uint64_t)v;
    return 0;
}
