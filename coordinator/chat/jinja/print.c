/* Values as text: Python's str() and repr(), and JSON as json.dumps writes it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/chat/jinja/value.h"
#include "coordinator/model/unicode_table.h"

/* The shortest digits that read back, ".0" behind a whole one, an exponent below -4 and from 16 on. */
static size_t float_text(double f, char out[40])
{
    char digits[32], *e;
    int exponent, n_digits, precision = 0;
    size_t n = 0;

    if (!isfinite(f))
        return (size_t)snprintf(out, 40, "%s", isnan(f) ? "nan" : f > 0 ? "inf" : "-inf");
    do
        snprintf(digits, sizeof digits, "%.*e", precision, f);
    while (strtod(digits, NULL) != f && ++precision < 17);
    e = strchr(digits, 'e');
    exponent = atoi(e + 1);
    if (exponent < -4 || exponent >= 16) {
        *e = 0;
        return (size_t)snprintf(out, 40, "%se%c%02d", digits, exponent < 0 ? '-' : '+', abs(exponent));
    }
    n_digits = precision + 1;
    n = (size_t)snprintf(out, 40, "%.*f", n_digits - 1 > exponent ? n_digits - 1 - exponent : 1, f);
    return n;
}

static void print_number(struct run *r, struct buf *b, struct value v)
{
    char text[40];
    size_t n;

    if (v.kind == V_BIG) {
        buf_add(&r->c, b, v.s);
        return;
    }
    n = v.kind == V_FLOAT ? float_text(v.f, text) : (size_t)snprintf(text, sizeof text, "%lld", (long long)v.i);
    buf_bytes(&r->c, b, text, n, 0);
}

static int printable(uint32_t p)
{
    enum unicode_class k;

    if (p < 0x7F)
        return p >= 0x20;
    k = unicode_class(p);
    return k != UNICODE_NONE && k != UNICODE_SEPARATOR;
}

/* \n, \x07, \u2028, \U0001F600; letters: the short forms, in the order of codes. */
static void escaped(struct run *r, struct buf *b, uint32_t p, int mark)
{
    char text[12];
    const char *name = p == '\n' ? "\\n" : p == '\r' ? "\\r" : p == '\t' ? "\\t" : NULL;
    int n;

    if (name)
        n = snprintf(text, sizeof text, "%s", name);
    else
        n = snprintf(text, sizeof text, p < 0x100 ? "\\x%02x" : p < 0x10000 ? "\\u%04x" : "\\U%08x", p);
    buf_bytes(&r->c, b, text, (size_t)n, mark);
}

static void repr_str(struct run *r, struct buf *b, struct str s)
{
    int single = s.n && memchr(s.s, '\'', s.n), dbl = s.n && memchr(s.s, '"', s.n);
    char quote = single && !dbl ? '"' : '\'';
    size_t run = 0, len;

    buf_char(&r->c, b, quote, 0);
    for (size_t p = 0; p < s.n; p += len) {
        uint32_t u = point_at(s.s + p, &len);

        if (u != (uint32_t)quote && u != '\\' && printable(u))
            continue;
        buf_add(&r->c, b, str_slice(s, run, p));
        run = p + len;
        if (u == (uint32_t)quote || u == '\\') {
            buf_char(&r->c, b, '\\', str_mark(s, p));
            buf_char(&r->c, b, (char)u, str_mark(s, p));
        } else {
            escaped(r, b, u, str_mark(s, p));
        }
    }
    buf_add(&r->c, b, str_slice(s, run, s.n));
    buf_char(&r->c, b, quote, 0);
}

static void text(struct run *r, struct buf *b, const char *s)
{
    buf_bytes(&r->c, b, s, strlen(s), 0);
}

static void repr_seq(struct run *r, struct buf *b, struct value v)
{
    const struct seq *q = v.seq;
    char range[80];

    if (q->form == SEQ_RANGE) {
        snprintf(range, sizeof range, q->range[2] == 1 ? "range(%lld, %lld)" : "range(%lld, %lld, %lld)",
                 (long long)q->range[0], (long long)q->range[1], (long long)q->range[2]);
        text(r, b, range);
        return;
    }
    if (q->form > SEQ_TUPLE)
        fail_type(r, "printing (make it a list first)", v);
    text(r, b, q->form == SEQ_TUPLE ? "(" : "[");
    for (size_t i = 0; i < q->n; i++) {
        if (i)
            text(r, b, ", ");
        print_repr(r, b, q->items[i]);
    }
    text(r, b, q->form == SEQ_LIST ? "]" : q->n == 1 ? ",)" : ")");
}

static void repr_map(struct run *r, struct buf *b, const struct map *m)
{
    text(r, b, "{");
    for (size_t i = 0; i < m->n; i++) {
        if (i)
            text(r, b, ", ");
        print_repr(r, b, m->items[i].key);
        text(r, b, ": ");
        print_repr(r, b, m->items[i].value);
    }
    text(r, b, "}");
}

void print_repr(struct run *r, struct buf *b, struct value v)
{
    enter(r);
    switch (v.kind) {
    case V_UNDEFINED:
        text(r, b, "Undefined");
        break;
    case V_NONE:
        text(r, b, "None");
        break;
    case V_BOOL:
        text(r, b, v.i ? "True" : "False");
        break;
    case V_INT:
    case V_BIG:
    case V_FLOAT:
        print_number(r, b, v);
        break;
    case V_STR:
        repr_str(r, b, v.s);
        break;
    case V_SEQ:
        repr_seq(r, b, v);
        break;
    case V_MAP:
        repr_map(r, b, v.map);
        break;
    case V_NAMESPACE:
        text(r, b, "<Namespace ");
        repr_map(r, b, v.map);
        text(r, b, ">");
        break;
    default:
        fail_type(r, "printing", v);
    }
    leave_(r);
}

void print(struct run *r, struct buf *b, struct value v)
{
    if (v.kind == V_STR)
        buf_add(&r->c, b, v.s);
    else if (v.kind != V_UNDEFINED)
        print_repr(r, b, v);
}

struct str to_str(struct run *r, struct value v)
{
    struct buf b = {0};

    if (v.kind == V_STR)
        return v.s;
    print(r, &b, v);
    return buf_str(&b);
}

/* ---- JSON ---- */

struct dump {
    int ascii, sort, lines;
    struct str indent, item, key;
};

static void json_str(struct run *r, struct buf *b, struct str s, int ascii)
{
    static const char plain[] = "\"\\\n\r\t\b\f", names[] = "\"\\nrtbf";
    size_t run = 0, len;

    buf_char(&r->c, b, '"', 0);
    for (size_t p = 0; p < s.n; p += len) {
        uint32_t u = point_at(s.s + p, &len);
        const char *k = u && u < 0x80 ? strchr(plain, (int)u) : NULL;
        int mark = str_mark(s, p);
        char code[16];

        if (!k && u >= 0x20 && (!ascii || u < 0x7F))
            continue;
        buf_add(&r->c, b, str_slice(s, run, p));
        run = p + len;
        if (k)
            snprintf(code, sizeof code, "\\%c", names[k - plain]);
        else if (u < 0x10000)
            snprintf(code, sizeof code, "\\u%04x", u);
        else
            snprintf(code, sizeof code, "\\u%04x\\u%04x", 0xD800 + ((u - 0x10000) >> 10), 0xDC00 + (u & 0x3FF));
        buf_bytes(&r->c, b, code, strlen(code), mark);
    }
    buf_add(&r->c, b, str_slice(s, run, s.n));
    buf_char(&r->c, b, '"', 0);
}

static void json_value(struct run *r, struct buf *b, struct value v, const struct dump *d, size_t level);

static void json_line(struct run *r, struct buf *b, const struct dump *d, size_t level)
{
    if (!d->lines)
        return;
    buf_char(&r->c, b, '\n', 0);
    for (size_t i = 0; i < level; i++)
        buf_add(&r->c, b, d->indent);
}

static void json_number(struct run *r, struct buf *b, struct value v)
{
    if (v.kind == V_FLOAT && !isfinite(v.f))
        text(r, b, isnan(v.f) ? "NaN" : v.f > 0 ? "Infinity" : "-Infinity");
    else
        print_number(r, b, v);
}

static struct str json_key(struct run *r, struct value k)
{
    struct buf b = {0};

    switch (k.kind) {
    case V_STR:
        return k.s;
    case V_NONE:
        return STR("null");
    case V_BOOL:
        return k.i ? STR("true") : STR("false");
    case V_INT:
    case V_BIG:
    case V_FLOAT:
        json_number(r, &b, k);
        return buf_str(&b);
    default:
        fail(&r->c, JINJA_TYPE, "tojson: a key that is %s", kind_name(k));
    }
}

static void sort_entries(struct run *r, struct entry *x, size_t n)
{
    for (size_t i = 1; i < n; i++) { /* few, and sorted mostly; the steps count */
        struct entry e = x[i];
        size_t k = i;

        for (; k && compare(r, x[k - 1].key, e.key) > 0; k--) {
            step(&r->c);
            x[k] = x[k - 1];
        }
        x[k] = e;
    }
}

static void json_map(struct run *r, struct buf *b, const struct map *m, const struct dump *d, size_t level)
{
    struct entry *x = m->items;

    if (d->sort && m->n) {
        x = take_array(&r->c, m->n, sizeof *x);
        memcpy(x, m->items, m->n * sizeof *x);
        sort_entries(r, x, m->n);
    }
    text(r, b, "{");
    for (size_t i = 0; i < m->n; i++) {
        if (i)
            buf_add(&r->c, b, d->item);
        json_line(r, b, d, level + 1);
        json_str(r, b, json_key(r, x[i].key), d->ascii);
        buf_add(&r->c, b, d->key);
        json_value(r, b, x[i].value, d, level + 1);
    }
    if (m->n)
        json_line(r, b, d, level);
    text(r, b, "}");
}

static void json_seq(struct run *r, struct buf *b, const struct seq *q, const struct dump *d, size_t level)
{
    text(r, b, "[");
    for (size_t i = 0; i < q->n; i++) {
        if (i)
            buf_add(&r->c, b, d->item);
        json_line(r, b, d, level + 1);
        json_value(r, b, q->items[i], d, level + 1);
    }
    if (q->n)
        json_line(r, b, d, level);
    text(r, b, "]");
}

static void json_value(struct run *r, struct buf *b, struct value v, const struct dump *d, size_t level)
{
    enter(r);
    if (v.kind == V_NONE)
        text(r, b, "null");
    else if (v.kind == V_BOOL)
        text(r, b, v.i ? "true" : "false");
    else if (v.kind == V_INT || v.kind == V_BIG || v.kind == V_FLOAT)
        json_number(r, b, v);
    else if (v.kind == V_STR)
        json_str(r, b, v.s, d->ascii);
    else if (v.kind == V_SEQ && v.seq->form <= SEQ_TUPLE)
        json_seq(r, b, v.seq, d, level);
    else if (v.kind == V_MAP)
        json_map(r, b, v.map, d, level);
    else
        fail(&r->c, JINJA_TYPE, "tojson of %s", kind_name(v));
    leave_(r);
}

/* ensure_ascii, indent, separators, sort_keys */
struct value filter_tojson(struct run *r, struct value v, struct args *a)
{
    struct dump d = {.ascii = a->given[0] && truth(r, a->p[0]),
                     .sort = a->given[3] && truth(r, a->p[3]),
                     .item = STR(", "),
                     .key = STR(": ")};
    struct buf b = {0}, spaces = {0};

    if (a->given[1] && a->p[1].kind != V_NONE) {
        d.lines = 1;
        d.item = STR(",");
        if (a->p[1].kind == V_STR) {
            d.indent = a->p[1].s;
        } else {
            for (int64_t i = need_int(r, a->p[1], "indent"); i > 0; i--)
                buf_char(&r->c, &spaces, ' ', 0);
            d.indent = buf_str(&spaces);
        }
    }
    if (a->given[2] && a->p[2].kind != V_NONE) {
        struct value s = a->p[2];

        if (s.kind != V_SEQ || s.seq->n != 2)
            fail_type(r, "separators (two strings)", s);
        d.item = need_str(r, s.seq->items[0], "separators");
        d.key = need_str(r, s.seq->items[1], "separators");
    }
    json_value(r, &b, v, &d, 0);
    return v_buf(&b);
}
