/* Filters, tests, functions and methods: one table each. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/chat/jinja/value.h"

#define FN(name) static struct value name(struct run *r, struct value v, struct args *a)
#define UNUSED ((void)r, (void)v, (void)a)

int64_t need_int(struct run *r, struct value v, const char *what)
{
    if (v.kind != V_INT && v.kind != V_BOOL)
        fail_type(r, what, v);
    return v.i;
}

struct str need_str(struct run *r, struct value v, const char *what)
{
    if (v.kind != V_STR)
        fail_type(r, what, v);
    return v.s;
}

/* ---- arguments ---- */

void bind_args(struct run *r, const struct builtin *b, struct args *a)
{
    const char *p = b->params;
    size_t i = 0, named = 0;

    if (*p == '*')
        return;
    for (; *p; i++) {
        size_t n = strcspn(p, ",!");
        int needed = strchr(p, '!') != NULL;

        a->p[i] = v_undefined(STR("an argument"));
        if (i < a->n_pos) {
            a->p[i] = a->pos[i];
            a->given[i] = 1;
        }
        for (size_t k = 0; k < a->n_kw; k++)
            if (strlen(a->kw[k].name) == n && !memcmp(a->kw[k].name, p, n)) {
                if (a->given[i])
                    fail(&r->c, JINJA_TYPE, "%s: '%s' twice", b->name, a->kw[k].name);
                a->p[i] = a->kw[k].value;
                a->given[i] = 1;
                named++;
            }
        if (needed && !a->given[i])
            fail(&r->c, JINJA_TYPE, "%s: the argument '%.*s' is missing", b->name, (int)n, p);
        p += n + (p[n] != 0);
    }
    if (a->n_pos > i)
        fail(&r->c, JINJA_TYPE, "%s: %zu arguments, at most %zu are known", b->name, a->n_pos, i);
    if (named < a->n_kw)
        fail(&r->c, JINJA_TYPE, "%s: an argument with a name that is not known", b->name);
}

struct value call_builtin(struct run *r, const struct builtin *b, struct value self, struct args *a)
{
    if (!b->fn)
        fail(&r->c, JINJA_SYNTAX, "'%s' is not supported", b->name);
    bind_args(r, b, a);
    return b->fn(r, self, a);
}

static struct value call_filter(struct run *r, const struct builtin *b, struct value v, struct value *pos, size_t n)
{
    struct args a = {.pos = pos, .n_pos = n};
    struct value out;

    enter(r);
    out = call_builtin(r, b, v, &a);
    leave_(r);
    return out;
}

/* ---- filters on text ---- */

FN(f_string)
{
    (void)a;
    return v_str(to_str(r, v));
}
FN(f_upper)
{
    (void)a;
    return v_str(change_case(r, to_str(r, v), UPPER));
}
FN(f_lower)
{
    (void)a;
    return v_str(change_case(r, to_str(r, v), LOWER));
}
FN(f_capitalize)
{
    (void)a;
    return v_str(change_case(r, to_str(r, v), CAPITALIZE));
}

/* Unlike the method: words begin behind white space and - ( { [ <. */
FN(f_title)
{
    struct str s = to_str(r, v);
    struct buf b = {0};
    int begin = 1;
    size_t len;

    (void)a;
    for (size_t p = 0; p < s.n; p += len) {
        uint32_t u = point_at(s.s + p, &len);
        struct str c = str_slice(s, p, p + len);

        buf_add(&r->c, &b, change_case(r, c, begin ? UPPER : LOWER));
        begin = is_space(u) || (u < 0x80 && strchr("-({[<", (int)u) && u);
    }
    return v_buf(&b);
}

FN(f_trim)
{
    struct str s = to_str(r, v);

    if (a->given[0] && a->p[0].kind != V_NONE) {
        struct str chars = need_str(r, a->p[0], "trim");

        return v_str(strip(r, s, &chars, LEFT | RIGHT));
    }
    return v_str(strip(r, s, NULL, LEFT | RIGHT));
}

FN(f_replace)
{
    int64_t most = a->given[2] && a->p[2].kind != V_NONE ? need_int(r, a->p[2], "replace") : -1;

    return v_str(replace(r, to_str(r, v), to_str(r, a->p[0]), to_str(r, a->p[1]), most));
}

FN(f_escape)
{
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    static const char plain[] = "&<>'\"";
    struct str s = to_str(r, v);
    struct buf b = {0};

    (void)a;
    for (size_t p = 0; p < s.n; p++) {
        const char *k = s.s[p] ? strchr(plain, s.s[p]) : NULL;

        if (k)
            buf_bytes(&r->c, &b, names[k - plain], strlen(names[k - plain]), str_mark(s, p));
        else
            buf_add(&r->c, &b, str_slice(s, p, p + 1));
    }
    return v_buf(&b);
}

/* width, first, blank */
FN(f_indent)
{
    struct seq *lines;
    struct buf b = {0}, in = {0};
    struct str s = need_str(r, v, "indent");
    int blank = a->given[2] && truth(r, a->p[2]);

    if (a->given[0] && a->p[0].kind == V_STR)
        buf_add(&r->c, &in, a->p[0].s);
    else
        for (int64_t i = a->given[0] ? need_int(r, a->p[0], "indent") : 4; i > 0; i--)
            buf_char(&r->c, &in, ' ', 0);
    buf_add(&r->c, &b, s);
    buf_char(&r->c, &b, '\n', 0);
    lines = split_lines(r, buf_str(&b), 0);
    b = (struct buf){0};
    if (a->given[1] && truth(r, a->p[1]))
        buf_add(&r->c, &b, buf_str(&in));
    for (size_t i = 0; i < lines->n; i++) {
        struct str line = lines->items[i].s;

        if (i) {
            buf_char(&r->c, &b, '\n', 0);
            if (line.n || blank)
                buf_add(&r->c, &b, buf_str(&in));
        }
        buf_add(&r->c, &b, line);
    }
    return v_buf(&b);
}

FN(f_format)
{
    if (a->n_pos && a->n_kw)
        fail(&r->c, JINJA_TYPE, "format: arguments with and without names");
    if (a->n_kw) {
        struct map *m = map_new(r);

        for (size_t i = 0; i < a->n_kw; i++)
            map_put(r, m, v_str((struct str){a->kw[i].name, strlen(a->kw[i].name), NULL}), a->kw[i].value);
        return v_str(format_percent(r, to_str(r, v), NULL, 0, m));
    }
    return v_str(format_percent(r, to_str(r, v), a->pos, a->n_pos, NULL));
}

/* ---- numbers ---- */

FN(f_abs)
{
    (void)a;
    if (v.kind == V_FLOAT)
        return v_float(fabs(v.f));
    return need_int(r, v, "abs") < 0 ? negate(r, v) : v_int(v.i);
}

/* The whole of s, white space around it aside, as a number; 0: it is none. */
static int read_number(struct run *r, struct str s, int as_int, struct value *out)
{
    char text[400], *end;
    size_t n = 0;
    long long i;

    s = strip(r, s, NULL, LEFT | RIGHT);
    if (!s.n || s.n >= sizeof text)
        return 0;
    for (size_t p = 0; p < s.n; p++) {
        if (!s.s[p] || !strchr("0123456789+-.eE_infatyINFATY", s.s[p]))
            return 0;
        if (s.s[p] != '_')
            text[n++] = s.s[p];
    }
    text[n] = 0;
    errno = 0;
    if (as_int) {
        i = strtoll(text, &end, 10);
        if (*end || errno)
            return 0;
        *out = v_int(i);
    } else {
        *out = v_float(strtod(text, &end));
        if (*end)
            return 0;
    }
    return 1;
}

FN(f_int)
{
    struct value other = a->given[0] ? a->p[0] : v_int(0), x;

    if (a->given[1] && (a->p[1].kind != V_INT || a->p[1].i != 10))
        fail(&r->c, JINJA_SYNTAX, "int: another base than 10 is not supported");
    if (v.kind == V_INT || v.kind == V_BIG)
        return v;
    if (v.kind == V_BOOL)
        return v_int(v.i);
    need_defined(r, v);
    x = v;
    if (v.kind == V_STR && !read_number(r, v.s, 1, &x))
        if (!read_number(r, v.s, 0, &x))
            return other;
    if (x.kind == V_INT)
        return x;
    if (x.kind != V_FLOAT || !(x.f > -0x1p63 && x.f < 0x1p63))
        return other;
    return v_int((int64_t)x.f);
}

FN(f_float)
{
    struct value other = a->given[0] ? a->p[0] : v_float(0), x;

    need_defined(r, v);
    if (v.kind == V_INT || v.kind == V_BOOL)
        return v_float((double)v.i);
    if (v.kind == V_FLOAT)
        return v;
    return (v.kind == V_STR || v.kind == V_BIG) && read_number(r, v.s, 0, &x) ? x : other;
}

/* Half to even of the exact value, as Python's round. */
static double rounded(double x, int64_t digits)
{
    char text[420];

    if (!isfinite(x) || digits > 300)
        return x;
    if (digits < 0) {
        double p = pow(10, (double)(digits < -308 ? 308 : -digits));

        return digits < -308 ? 0 * x : rint(x / p) * p;
    }
    snprintf(text, sizeof text, "%.*f", (int)digits, x);
    return strtod(text, NULL);
}

FN(f_round)
{
    int64_t digits = a->given[0] ? need_int(r, a->p[0], "round") : 0;
    struct str how = a->given[1] ? need_str(r, a->p[1], "round") : STR("common");
    double p;

    if (v.kind == V_BOOL)
        v.kind = V_INT;
    if (str_is(how, "common")) {
        if (v.kind == V_INT && digits >= 0)
            return v;
        if (v.kind != V_FLOAT)
            fail_type(r, "round", v);
        return v_float(rounded(v.f, digits));
    }
    if (!str_is(how, "ceil") && !str_is(how, "floor"))
        fail(&r->c, JINJA_RUNTIME, "round: the method must be common, ceil or floor");
    if (v.kind == V_INT)
        v = v_float((double)v.i);
    if (v.kind != V_FLOAT)
        fail_type(r, "round", v);
    p = pow(10, (double)digits);
    return v_float((str_is(how, "ceil") ? ceil(v.f * p) : floor(v.f * p)) / p);
}

/* ---- lists ---- */

/* "a.b.0" of each item; NULL attribute: the item. */
static struct value attribute(struct run *r, struct value v, struct value path)
{
    struct str s;
    size_t from = 0;

    if (path.kind == V_INT)
        return get_item(r, v, path);
    s = need_str(r, path, "an attribute");
    for (size_t p = 0; p <= s.n; p++) {
        struct str part;
        struct value key;

        if (p < s.n && s.s[p] != '.')
            continue;
        part = str_slice(s, from, p);
        from = p + 1;
        if (!part.n || strspn(part.s, "0123456789") < part.n || !read_number(r, part, 1, &key))
            key = v_str(part);
        v = get_item(r, v, key);
    }
    return v;
}

FN(f_length)
{
    (void)a;
    return v_int(length(r, v));
}

FN(f_list)
{
    struct seq *from = iterate(r, v), *q = seq_new(r, SEQ_LIST);

    (void)a;
    for (size_t i = 0; i < from->n; i++)
        seq_add(r, q, from->items[i]);
    return v_seq(q);
}

FN(f_first)
{
    struct seq *q = iterate(r, v);

    (void)a;
    return q->n ? q->items[0] : v_undefined(STR("the first of nothing"));
}

FN(f_last)
{
    struct seq *q;

    (void)a;
    if (v.kind == V_SEQ && v.seq->form == SEQ_LAZY)
        fail_type(r, "last (make it a list first)", v);
    q = iterate(r, v);
    return q->n ? q->items[q->n - 1] : v_undefined(STR("the last of nothing"));
}

FN(f_reverse)
{
    struct seq *from = iterate(r, v), *q = seq_new(r, SEQ_LAZY);
    struct buf b = {0};

    (void)a;
    for (size_t i = from->n; i-- > 0;)
        if (v.kind == V_STR)
            buf_add(&r->c, &b, from->items[i].s);
        else
            seq_add(r, q, from->items[i]);
    return v.kind == V_STR ? v_buf(&b) : v_seq(q);
}

FN(f_join)
{
    struct seq *q = iterate(r, v);
    struct str with = a->given[0] ? to_str(r, a->p[0]) : STR("");
    struct buf b = {0};

    for (size_t i = 0; i < q->n; i++) {
        struct value x = q->items[i];

        if (i)
            buf_add(&r->c, &b, with);
        print(r, &b, a->given[1] && a->p[1].kind != V_NONE ? attribute(r, x, a->p[1]) : x);
    }
    return v_buf(&b);
}

FN(f_items)
{
    struct seq *q = seq_new(r, SEQ_VIEW);

    (void)a;
    if (v.kind == V_UNDEFINED)
        return v_seq(q);
    if (v.kind != V_MAP)
        fail_type(r, "items", v);
    for (size_t i = 0; i < v.map->n; i++) {
        struct seq *pair = seq_new(r, SEQ_TUPLE);

        seq_add(r, pair, v.map->items[i].key);
        seq_add(r, pair, v.map->items[i].value);
        seq_add(r, q, v_seq(pair));
    }
    return v_seq(q);
}

/* What is sorted and compared: an attribute of each, without regard to case. */
static struct value sort_key(struct run *r, struct value v, const struct value *attr, int with_case)
{
    if (attr && attr->kind != V_NONE)
        v = attribute(r, v, *attr);
    return v.kind == V_STR && !with_case ? v_str(change_case(r, v.s, LOWER)) : v;
}

struct keyed {
    struct value key, value;
};

/* Stable, by merging; an error of the comparison leaves it. */
static void sort(struct run *r, struct keyed *x, size_t n, int backwards)
{
    struct keyed *t, *from = x, *to;

    if (n < 2)
        return;
    t = take_array(&r->c, n, sizeof *t);
    to = t;
    for (size_t w = 1; w < n; w *= 2) {
        struct keyed *swap = from;

        for (size_t at = 0; at < n; at += 2 * w) {
            size_t i = at, mid = at + w < n ? at + w : n, end = at + 2 * w < n ? at + 2 * w : n, j = mid;

            for (size_t k = at; k < end; k++) {
                int second = i >= mid;

                if (i < mid && j < end) {
                    int d = compare(r, from[j].key, from[i].key);

                    second = backwards ? d > 0 : d < 0;
                }
                step(&r->c);
                to[k] = second ? from[j++] : from[i++];
            }
        }
        from = to;
        to = swap;
    }
    if (from != x)
        memcpy(x, from, n * sizeof *x);
}

static struct value sorted(struct run *r, const struct seq *q, const struct value *attr, int with_case, int backwards)
{
    struct keyed *x = take_array(&r->c, q->n, sizeof *x);
    struct seq *out = seq_new(r, SEQ_LIST);

    for (size_t i = 0; i < q->n; i++)
        x[i] = (struct keyed){sort_key(r, q->items[i], attr, with_case), q->items[i]};
    sort(r, x, q->n, backwards);
    for (size_t i = 0; i < q->n; i++)
        seq_add(r, out, x[i].value);
    return v_seq(out);
}

/* reverse, case_sensitive, attribute */
FN(f_sort)
{
    return sorted(r, iterate(r, v), a->given[2] ? &a->p[2] : NULL, a->given[1] && truth(r, a->p[1]),
                  a->given[0] && truth(r, a->p[0]));
}

/* case_sensitive, by, reverse */
FN(f_dictsort)
{
    struct value by = v_int(0), items;
    struct args none = {0};

    if (a->given[1]) {
        if (!str_is(need_str(r, a->p[1], "dictsort"), "key") && !str_is(a->p[1].s, "value"))
            fail(&r->c, JINJA_RUNTIME, "dictsort: by must be key or value");
        by = v_int(str_is(a->p[1].s, "value"));
    }
    if (v.kind != V_MAP)
        fail_type(r, "dictsort", v);
    items = f_items(r, v, &none);
    return sorted(r, items.seq, &by, a->given[0] && truth(r, a->p[0]), a->given[2] && truth(r, a->p[2]));
}

/* case_sensitive, attribute */
static struct value extreme(struct run *r, struct value v, struct args *a, int sign)
{
    struct seq *q = iterate(r, v);
    const struct value *attr = a->given[1] ? &a->p[1] : NULL;
    int with_case = a->given[0] && truth(r, a->p[0]);
    struct value best, key;

    if (!q->n)
        return v_undefined(STR("an extreme of nothing"));
    best = q->items[0];
    key = sort_key(r, best, attr, with_case);
    for (size_t i = 1; i < q->n; i++) {
        struct value k = sort_key(r, q->items[i], attr, with_case);

        if (compare(r, k, key) * sign > 0) {
            best = q->items[i];
            key = k;
        }
    }
    return best;
}
FN(f_max)
{
    return extreme(r, v, a, 1);
}
FN(f_min)
{
    return extreme(r, v, a, -1);
}

/* case_sensitive, attribute */
FN(f_unique)
{
    struct seq *q = iterate(r, v), *out = seq_new(r, SEQ_LAZY), *seen = seq_new(r, SEQ_LIST);

    for (size_t i = 0; i < q->n; i++) {
        struct value k = sort_key(r, q->items[i], a->given[1] ? &a->p[1] : NULL, a->given[0] && truth(r, a->p[0]));

        if (contains(r, v_seq(seen), k))
            continue;
        seq_add(r, seen, k);
        seq_add(r, out, q->items[i]);
    }
    return v_seq(out);
}

/* attribute, start */
FN(f_sum)
{
    struct seq *q = iterate(r, v);
    struct value sum = a->given[1] ? a->p[1] : v_int(0);

    for (size_t i = 0; i < q->n; i++)
        sum = arith(r, '+', sum,
                    a->given[0] && a->p[0].kind != V_NONE ? attribute(r, q->items[i], a->p[0]) : q->items[i]);
    return sum;
}

/* ---- filters that take filters and tests ---- */

static const char *builtin_name(struct run *r, struct args *a, size_t i, const char *what, char out[64])
{
    struct str s;

    if (i >= a->n_pos)
        fail(&r->c, JINJA_TYPE, "%s: its name is missing", what);
    s = need_str(r, a->pos[i], what);
    snprintf(out, 64, "%.*s", s.n > 60 ? 60 : (int)s.n, s.s);
    return out;
}

/* map('upper'), map(attribute='a', default=x) */
FN(f_map)
{
    struct seq *q = iterate(r, v), *out = seq_new(r, SEQ_LAZY);
    const struct builtin *f = NULL;
    struct value attr = {0}, otherwise = {0};
    int has_default = 0;
    char name[64];

    if (a->n_pos) {
        f = find_filter(builtin_name(r, a, 0, "map", name));
        if (!f)
            fail(&r->c, JINJA_SYNTAX, "map: the filter '%s' is not known", name);
    }
    for (size_t i = 0; i < a->n_kw; i++) {
        if (f)
            fail(&r->c, JINJA_SYNTAX, "map: names in arguments of its filter are not supported");
        if (!strcmp(a->kw[i].name, "attribute")) {
            attr = a->kw[i].value;
        } else if (!strcmp(a->kw[i].name, "default")) {
            otherwise = a->kw[i].value;
            has_default = 1;
        } else {
            fail(&r->c, JINJA_TYPE, "map: the argument '%s' is not known", a->kw[i].name);
        }
    }
    if (!f && attr.kind == V_UNDEFINED)
        fail(&r->c, JINJA_TYPE, "map: a filter or an attribute is needed");
    for (size_t i = 0; i < q->n; i++) {
        struct value x = q->items[i];

        x = f ? call_filter(r, f, x, a->pos + 1, a->n_pos - 1) : attribute(r, x, attr);
        seq_add(r, out, x.kind == V_UNDEFINED && has_default ? otherwise : x);
    }
    return v_seq(out);
}

/* args: the attribute if there is one, then a test and its arguments; no test: truth */
static struct value chosen(struct run *r, struct value v, struct args *a, int by_attr, int keep)
{
    struct seq *q = iterate(r, v), *out = seq_new(r, SEQ_LAZY);
    size_t at = (size_t)by_attr;
    const struct builtin *t = NULL;
    char name[64];

    if (a->n_kw)
        fail(&r->c, JINJA_SYNTAX, "select, reject: arguments with names are not supported");
    if (by_attr && !a->n_pos)
        fail(&r->c, JINJA_TYPE, "selectattr, rejectattr: the attribute is missing");
    if (a->n_pos > at) {
        t = find_test(builtin_name(r, a, at, "a test", name));
        if (!t)
            fail(&r->c, JINJA_SYNTAX, "the test '%s' is not known", name);
    }
    for (size_t i = 0; i < q->n; i++) {
        struct value x = by_attr ? attribute(r, q->items[i], a->pos[0]) : q->items[i];

        if (t)
            x = call_filter(r, t, x, a->pos + at + 1, a->n_pos - at - 1);
        if (truth(r, x) == keep)
            seq_add(r, out, q->items[i]);
    }
    return v_seq(out);
}
FN(f_select)
{
    return chosen(r, v, a, 0, 1);
}
FN(f_reject)
{
    return chosen(r, v, a, 0, 0);
}
FN(f_selectattr)
{
    return chosen(r, v, a, 1, 1);
}
FN(f_rejectattr)
{
    return chosen(r, v, a, 1, 0);
}

/* ---- others ---- */

enum { JSON_TREE_COST = 50 }; /* bytes of a tree for one of its text */

FN(f_default)
{
    struct value other = a->given[0] ? a->p[0] : v_str(STR(""));

    return v.kind == V_UNDEFINED || (a->given[1] && truth(r, a->p[1]) && !truth(r, v)) ? other : v;
}

FN(f_safe)
{
    (void)a;
    return v.kind == V_STR ? v : v_str(to_str(r, v));
}

FN(f_from_json)
{
    struct str s = need_str(r, v, "from_json");
    struct json_limits limits = {.depth = JINJA_NESTING_MAX};
    struct kept *k = take(&r->c, sizeof *k);
    struct err e = {0};

    (void)a;
    work(&r->c, 16 * s.n);
    if (s.n > r->c.memory_max / JSON_TREE_COST || (r->c.used += JSON_TREE_COST * s.n) > r->c.memory_max)
        fail(&r->c, JINJA_LIMIT, "from_json: %zu bytes are too many", s.n);
    if (json_parse("from_json", s.s, s.n, &limits, &k->doc, &e))
        fail(&r->c, JINJA_RUNTIME, "%s", e.msg);
    k->next = r->kept;
    r->kept = k;
    return from_json(r, json_root(k->doc), s.m == NULL);
}

static const struct builtin filters[] = {
    {"abs", "", f_abs},
    {"capitalize", "", f_capitalize},
    {"count", "", f_length},
    {"d", "default_value,boolean", f_default},
    {"default", "default_value,boolean", f_default},
    {"dictsort", "case_sensitive,by,reverse", f_dictsort},
    {"e", "", f_escape},
    {"escape", "", f_escape},
    {"first", "", f_first},
    {"float", "default", f_float},
    {"format", "*", f_format},
    {"from_json", "", f_from_json},
    {"fromjson", "", f_from_json},
    {"indent", "width,first,blank", f_indent},
    {"int", "default,base", f_int},
    {"items", "", f_items},
    {"join", "d,attribute", f_join},
    {"last", "", f_last},
    {"length", "", f_length},
    {"list", "", f_list},
    {"lower", "", f_lower},
    {"map", "*", f_map},
    {"max", "case_sensitive,attribute", f_max},
    {"min", "case_sensitive,attribute", f_min},
    {"reject", "*", f_reject},
    {"rejectattr", "*", f_rejectattr},
    {"replace", "old,new!count", f_replace},
    {"reverse", "", f_reverse},
    {"round", "precision,method", f_round},
    {"safe", "", f_safe},
    {"select", "*", f_select},
    {"selectattr", "*", f_selectattr},
    {"sort", "reverse,case_sensitive,attribute", f_sort},
    {"string", "", f_string},
    {"sum", "attribute,start", f_sum},
    {"title", "", f_title},
    {"tojson", "ensure_ascii,indent,separators,sort_keys", filter_tojson},
    {"trim", "chars", f_trim},
    {"unique", "case_sensitive,attribute", f_unique},
    {"upper", "", f_upper},
};

/* ---- tests ---- */

#define TEST(name, expression)                                                                               \
    FN(name)                                                                                                 \
    {                                                                                                        \
        UNUSED;                                                                                              \
        return v_bool(expression);                                                                           \
    }
TEST(t_defined, v.kind != V_UNDEFINED)
TEST(t_undefined, v.kind == V_UNDEFINED)
TEST(t_none, v.kind == V_NONE)
TEST(t_boolean, v.kind == V_BOOL)
TEST(t_true, v.kind == V_BOOL && v.i)
TEST(t_false, v.kind == V_BOOL && !v.i)
TEST(t_integer, v.kind == V_INT || v.kind == V_BIG)
TEST(t_float, v.kind == V_FLOAT)
TEST(t_number, v.kind == V_INT || v.kind == V_BIG || v.kind == V_FLOAT || v.kind == V_BOOL)
TEST(t_string, v.kind == V_STR)
TEST(t_mapping, v.kind == V_MAP)
TEST(t_iterable, v.kind == V_STR || v.kind == V_SEQ || v.kind == V_MAP || v.kind == V_UNDEFINED || v.kind == V_LOOP)
TEST(t_sequence,
     v.kind == V_STR || v.kind == V_MAP || v.kind == V_UNDEFINED || (v.kind == V_SEQ && v.seq->form <= SEQ_RANGE))
TEST(t_in, contains(r, a->p[0], v))
TEST(t_eq, equal(r, v, a->p[0]))
TEST(t_ne, !equal(r, v, a->p[0]))

/* NaN compares false with everything: compare gives 2 then. */
static int ordered(struct run *r, struct value x, struct value y, int *d)
{
    *d = compare(r, x, y);
    return *d != 2 || x.kind == V_STR || x.kind == V_SEQ;
}
FN(t_lt)
{
    int d;

    return v_bool(ordered(r, v, a->p[0], &d) && d < 0);
}
FN(t_le)
{
    int d;

    return v_bool(ordered(r, v, a->p[0], &d) && d <= 0);
}
FN(t_gt)
{
    int d;

    return v_bool(ordered(r, v, a->p[0], &d) && d > 0);
}
FN(t_ge)
{
    int d;

    return v_bool(ordered(r, v, a->p[0], &d) && d >= 0);
}

FN(t_divisibleby)
{
    return v_bool(equal(r, arith(r, '%', v, a->p[0]), v_int(0)));
}
FN(t_odd)
{
    (void)a;
    return v_bool(equal(r, arith(r, '%', v, v_int(2)), v_int(1)));
}
FN(t_even)
{
    (void)a;
    return v_bool(equal(r, arith(r, '%', v, v_int(2)), v_int(0)));
}

/* At least one letter with a case, and none of the other. */
static struct value all_case(struct run *r, struct value v, enum letters how, enum letters other)
{
    struct str s = to_str(r, v);

    return v_bool(str_eq(change_case(r, s, how), s) && !str_eq(change_case(r, s, other), s));
}
FN(t_lower)
{
    (void)a;
    return all_case(r, v, LOWER, UPPER);
}
FN(t_upper)
{
    (void)a;
    return all_case(r, v, UPPER, LOWER);
}

static const struct builtin tests[] = {
    {"!=", "other!", t_ne},
    {"<", "other!", t_lt},
    {"<=", "other!", t_le},
    {"==", "other!", t_eq},
    {">", "other!", t_gt},
    {">=", "other!", t_ge},
    {"boolean", "", t_boolean},
    {"defined", "", t_defined},
    {"divisibleby", "num!", t_divisibleby},
    {"eq", "other!", t_eq},
    {"equalto", "other!", t_eq},
    {"even", "", t_even},
    {"false", "", t_false},
    {"float", "", t_float},
    {"ge", "other!", t_ge},
    {"greaterthan", "other!", t_gt},
    {"gt", "other!", t_gt},
    {"in", "seq!", t_in},
    {"integer", "", t_integer},
    {"iterable", "", t_iterable},
    {"le", "other!", t_le},
    {"lessthan", "other!", t_lt},
    {"lower", "", t_lower},
    {"lt", "other!", t_lt},
    {"mapping", "", t_mapping},
    {"ne", "other!", t_ne},
    {"none", "", t_none},
    {"number", "", t_number},
    {"odd", "", t_odd},
    {"sequence", "", t_sequence},
    {"string", "", t_string},
    {"true", "", t_true},
    {"undefined", "", t_undefined},
    {"upper", "", t_upper},
};

/* ---- functions ---- */

FN(g_range)
{
    struct seq *q = seq_new(r, SEQ_RANGE);
    int64_t from = 0, to, by = 1;
    uint64_t n = 0;

    (void)v;
    if (a->n_kw || !a->n_pos || a->n_pos > 3)
        fail(&r->c, JINJA_TYPE, "range: one to three whole numbers");
    to = need_int(r, a->pos[0], "range");
    if (a->n_pos > 1) {
        from = to;
        to = need_int(r, a->pos[1], "range");
    }
    if (a->n_pos > 2)
        by = need_int(r, a->pos[2], "range");
    if (!by)
        fail(&r->c, JINJA_RUNTIME, "range: step 0");
    if (by > 0 && from < to)
        n = ((uint64_t)to - (uint64_t)from - 1) / (uint64_t)by + 1;
    if (by < 0 && from > to)
        n = ((uint64_t)from - (uint64_t)to - 1) / (0 - (uint64_t)by) + 1;
    if (n > JINJA_RANGE_MAX)
        fail(&r->c, JINJA_LIMIT, "range: more than %d numbers", JINJA_RANGE_MAX);
    q->range[0] = from;
    q->range[1] = to;
    q->range[2] = by;
    for (uint64_t i = 0; i < n; i++)
        seq_add(r, q, v_int((int64_t)((uint64_t)from + i * (uint64_t)by)));
    return v_seq(q);
}

/* Pairs or a map, then names. */
static struct map *make_map(struct run *r, struct args *a, const char *what)
{
    struct map *m = map_new(r);

    if (a->n_pos > 1)
        fail(&r->c, JINJA_TYPE, "%s: more than one argument without a name", what);
    if (a->n_pos && a->pos[0].kind == V_MAP) {
        for (size_t i = 0; i < a->pos[0].map->n; i++)
            map_put(r, m, a->pos[0].map->items[i].key, a->pos[0].map->items[i].value);
    } else if (a->n_pos) {
        struct seq *q = iterate(r, a->pos[0]);

        for (size_t i = 0; i < q->n; i++) {
            struct seq *pair = iterate(r, q->items[i]);

            if (pair->n != 2)
                fail(&r->c, JINJA_TYPE, "%s: pairs are wanted", what);
            map_put(r, m, pair->items[0], pair->items[1]);
        }
    }
    for (size_t i = 0; i < a->n_kw; i++)
        map_put(r, m, v_str((struct str){a->kw[i].name, strlen(a->kw[i].name), NULL}), a->kw[i].value);
    return m;
}

FN(g_dict)
{
    (void)v;
    return v_map(make_map(r, a, "dict"));
}
FN(g_namespace)
{
    (void)v;
    return (struct value){.kind = V_NAMESPACE, .map = make_map(r, a, "namespace")};
}

FN(g_raise)
{
    struct str s = to_str(r, a->p[0]);

    (void)v;
    fail_raised(&r->c, s.s, s.n);
}

FN(g_strftime)
{
    (void)v;
    return v_str(format_time(r, need_str(r, a->p[0], "strftime_now")));
}

static const struct builtin functions[] = {
    {"cycler", "*", NULL},
    {"dict", "*", g_dict},
    {"joiner", "*", NULL},
    {"lipsum", "*", NULL},
    {"namespace", "*", g_namespace},
    {"raise_exception", "message!", g_raise},
    {"range", "*", g_range},
    {"strftime_now", "format!", g_strftime},
};

/* ---- methods of strings ---- */

static struct value stripped(struct run *r, struct value v, struct args *a, int sides)
{
    struct str chars;

    if (!a->given[0] || a->p[0].kind == V_NONE)
        return v_str(strip(r, v.s, NULL, sides));
    chars = need_str(r, a->p[0], "strip");
    return v_str(strip(r, v.s, &chars, sides));
}
FN(s_strip)
{
    return stripped(r, v, a, LEFT | RIGHT);
}
FN(s_lstrip)
{
    return stripped(r, v, a, LEFT);
}
FN(s_rstrip)
{
    return stripped(r, v, a, RIGHT);
}

static struct value split_at(struct run *r, struct value v, struct args *a, int from_right)
{
    int64_t most = a->given[1] ? need_int(r, a->p[1], "split") : -1;
    struct str sep;

    if (!a->given[0] || a->p[0].kind == V_NONE)
        return v_seq(split(r, v.s, NULL, most, from_right));
    sep = need_str(r, a->p[0], "split");
    return v_seq(split(r, v.s, &sep, most, from_right));
}
FN(s_split)
{
    return split_at(r, v, a, 0);
}
FN(s_rsplit)
{
    return split_at(r, v, a, 1);
}
FN(s_splitlines)
{
    return v_seq(split_lines(r, v.s, a->given[0] && truth(r, a->p[0])));
}

static int begins(struct str s, struct str x, int at_end)
{
    return x.n <= s.n && (!x.n || !memcmp(at_end ? s.s + s.n - x.n : s.s, x.s, x.n));
}
static struct value affix(struct run *r, struct value v, struct args *a, int at_end)
{
    struct value x = a->p[0];

    if (x.kind == V_SEQ && x.seq->form == SEQ_TUPLE) {
        for (size_t i = 0; i < x.seq->n; i++)
            if (begins(v.s, need_str(r, x.seq->items[i], "startswith, endswith"), at_end))
                return v_bool(1);
        return v_bool(0);
    }
    return v_bool(begins(v.s, need_str(r, x, "startswith, endswith"), at_end));
}
FN(s_startswith)
{
    return affix(r, v, a, 0);
}
FN(s_endswith)
{
    return affix(r, v, a, 1);
}
FN(s_removeprefix)
{
    struct str x = need_str(r, a->p[0], "removeprefix");

    return v_str(begins(v.s, x, 0) ? str_slice(v.s, x.n, v.s.n) : v.s);
}
FN(s_removesuffix)
{
    struct str x = need_str(r, a->p[0], "removesuffix");

    return v_str(begins(v.s, x, 1) ? str_slice(v.s, 0, v.s.n - x.n) : v.s);
}

FN(s_replace)
{
    int64_t most = a->given[2] ? need_int(r, a->p[2], "replace") : -1;

    return v_str(replace(r, v.s, need_str(r, a->p[0], "replace"), need_str(r, a->p[1], "replace"), most));
}

FN(s_find)
{
    struct str x = need_str(r, a->p[0], "find");
    ptrdiff_t at = find(v.s, x, 0);

    work(&r->c, v.s.n);
    return v_int(at < 0 ? -1 : (int64_t)str_points(str_slice(v.s, 0, (size_t)at)));
}

FN(s_count)
{
    struct str x = need_str(r, a->p[0], "count");
    int64_t n = 0;

    work(&r->c, v.s.n);
    if (!x.n)
        return v_int((int64_t)str_points(v.s) + 1);
    for (ptrdiff_t at = find(v.s, x, 0); at >= 0; at = find(v.s, x, (size_t)at + x.n))
        n++;
    return v_int(n);
}

FN(s_join)
{
    struct seq *q = iterate(r, a->p[0]);
    struct buf b = {0};

    for (size_t i = 0; i < q->n; i++) {
        if (i)
            buf_add(&r->c, &b, v.s);
        buf_add(&r->c, &b, need_str(r, q->items[i], "join"));
    }
    return v_buf(&b);
}

FN(s_title)
{
    (void)a;
    return v_str(change_case(r, v.s, TITLE));
}
FN(s_format)
{
    return v_str(format_braces(r, v.s, a));
}

static const struct builtin string_methods[] = {
    {"capitalize", "", f_capitalize},
    {"casefold", "*", NULL},
    {"center", "*", NULL},
    {"count", "sub!", s_count},
    {"encode", "*", NULL},
    {"endswith", "suffix!", s_endswith},
    {"expandtabs", "*", NULL},
    {"find", "sub!", s_find},
    {"format", "*", s_format},
    {"format_map", "*", NULL},
    {"index", "*", NULL},
    {"isalnum", "*", NULL},
    {"isalpha", "*", NULL},
    {"isascii", "*", NULL},
    {"isdecimal", "*", NULL},
    {"isdigit", "*", NULL},
    {"isidentifier", "*", NULL},
    {"islower", "", t_lower},
    {"isnumeric", "*", NULL},
    {"isprintable", "*", NULL},
    {"isspace", "*", NULL},
    {"istitle", "*", NULL},
    {"isupper", "", t_upper},
    {"join", "iterable!", s_join},
    {"ljust", "*", NULL},
    {"lower", "", f_lower},
    {"lstrip", "chars", s_lstrip},
    {"maketrans", "*", NULL},
    {"partition", "*", NULL},
    {"removeprefix", "prefix!", s_removeprefix},
    {"removesuffix", "suffix!", s_removesuffix},
    {"replace", "old,new!count", s_replace},
    {"rfind", "*", NULL},
    {"rindex", "*", NULL},
    {"rjust", "*", NULL},
    {"rpartition", "*", NULL},
    {"rsplit", "sep,maxsplit", s_rsplit},
    {"rstrip", "chars", s_rstrip},
    {"split", "sep,maxsplit", s_split},
    {"splitlines", "keepends", s_splitlines},
    {"startswith", "prefix!", s_startswith},
    {"strip", "chars", s_strip},
    {"swapcase", "*", NULL},
    {"title", "", s_title},
    {"translate", "*", NULL},
    {"upper", "", f_upper},
    {"zfill", "*", NULL},
};

/* ---- methods of maps and lists ---- */

static void need_ours(struct run *r, int frozen)
{
    if (frozen)
        fail(&r->c, JINJA_RUNTIME, "an input cannot be changed");
}

FN(m_get)
{
    const struct value *x = map_find(r, v.map, a->p[0]);

    return x ? *x : a->given[1] ? a->p[1] : v_none();
}
FN(m_keys)
{
    struct seq *q = iterate(r, v);

    (void)a;
    q->form = SEQ_VIEW;
    return v_seq(q);
}
FN(m_values)
{
    struct seq *q = seq_new(r, SEQ_VIEW);

    (void)a;
    for (size_t i = 0; i < v.map->n; i++)
        seq_add(r, q, v.map->items[i].value);
    return v_seq(q);
}
FN(m_copy)
{
    struct map *m = map_new(r);

    (void)a;
    for (size_t i = 0; i < v.map->n; i++)
        map_put(r, m, v.map->items[i].key, v.map->items[i].value);
    return v_map(m);
}
FN(m_update)
{
    struct map *m = make_map(r, a, "update");

    need_ours(r, v.map->frozen);
    for (size_t i = 0; i < m->n; i++)
        map_put(r, v.map, m->items[i].key, m->items[i].value);
    return v_none();
}
FN(m_pop)
{
    struct value *x = map_find(r, v.map, a->p[0]), out;

    need_ours(r, v.map->frozen);
    if (!x && !a->given[1])
        fail(&r->c, JINJA_RUNTIME, "pop: there is no such key");
    out = x ? *x : a->p[1];
    if (x)
        map_remove(r, v.map, x);
    return out;
}

static const struct builtin map_methods[] = {
    {"clear", "*", NULL},
    {"copy", "", m_copy},
    {"fromkeys", "*", NULL},
    {"get", "key!default", m_get},
    {"items", "", f_items},
    {"keys", "", m_keys},
    {"pop", "key!default", m_pop},
    {"popitem", "*", NULL},
    {"setdefault", "*", NULL},
    {"update", "*", m_update},
    {"values", "", m_values},
};

FN(l_append)
{
    need_ours(r, v.seq->frozen);
    seq_add(r, v.seq, a->p[0]);
    return v_none();
}
FN(l_extend)
{
    struct seq *q = iterate(r, a->p[0]);

    need_ours(r, v.seq->frozen);
    for (size_t i = 0, n = q->n; i < n; i++)
        seq_add(r, v.seq, q->items[i]);
    return v_none();
}
FN(l_pop)
{
    struct seq *q = v.seq;
    int64_t i = a->given[0] ? need_int(r, a->p[0], "pop") : -1;
    struct value out;

    need_ours(r, q->frozen);
    i += i < 0 ? (int64_t)q->n : 0;
    if (i < 0 || i >= (int64_t)q->n)
        fail(&r->c, JINJA_RUNTIME, "pop: the list has no such item");
    out = q->items[i];
    work(&r->c, 32 * (q->n - (size_t)i));
    memmove(q->items + i, q->items + i + 1, (--q->n - (size_t)i) * sizeof *q->items);
    return out;
}
FN(l_copy)
{
    return f_list(r, v, a);
}
FN(l_index)
{
    for (size_t i = 0; i < v.seq->n; i++)
        if (equal(r, v.seq->items[i], a->p[0]))
            return v_int((int64_t)i);
    fail(&r->c, JINJA_RUNTIME, "index: it is not in the list");
}
FN(l_count)
{
    int64_t n = 0;

    for (size_t i = 0; i < v.seq->n; i++)
        n += equal(r, v.seq->items[i], a->p[0]);
    return v_int(n);
}

static const struct builtin list_methods[] = {
    {"append", "object!", l_append},
    {"clear", "*", NULL},
    {"copy", "", l_copy},
    {"count", "value!", l_count},
    {"extend", "iterable!", l_extend},
    {"index", "value!", l_index},
    {"insert", "*", NULL},
    {"pop", "index", l_pop},
    {"remove", "*", NULL},
    {"reverse", "*", NULL},
    {"sort", "*", NULL},
};

static const struct builtin tuple_methods[] = {
    {"count", "value!", l_count},
    {"index", "value!", l_index},
};

/* ---- methods of loop ---- */

FN(loop_cycle)
{
    if (!a->n_pos)
        fail(&r->c, JINJA_TYPE, "loop.cycle: values are missing");
    return a->pos[v.loop->at % a->n_pos];
}
FN(loop_changed)
{
    struct seq *now = seq_new(r, SEQ_TUPLE);
    struct seq *before = v.loop->changed;

    for (size_t i = 0; i < a->n_pos; i++)
        seq_add(r, now, a->pos[i]);
    v.loop->changed = now;
    return v_bool(!before || !equal(r, v_seq(before), v_seq(now)));
}

static const struct builtin loop_methods[] = {
    {"changed", "*", loop_changed},
    {"cycle", "*", loop_cycle},
};

/* ---- look-up ---- */

#define FIND(table, name, n) find_in(table, sizeof table / sizeof *table, name, n)
static const struct builtin *find_in(const struct builtin *t, size_t n_table, const char *name, size_t n)
{
    for (size_t i = 0; i < n_table; i++)
        if (!strncmp(t[i].name, name, n) && !t[i].name[n])
            return &t[i];
    return NULL;
}

const struct builtin *find_filter(const char *name)
{
    return FIND(filters, name, strlen(name));
}
const struct builtin *find_test(const char *name)
{
    return FIND(tests, name, strlen(name));
}
const struct builtin *find_function(const char *name)
{
    return FIND(functions, name, strlen(name));
}
const struct builtin *find_method(struct value v, struct str name)
{
    if (memchr(name.s, 0, name.n) || name.n > 20)
        return NULL;
    switch (v.kind) {
    case V_STR:
        return FIND(string_methods, name.s, name.n);
    case V_MAP:
        return FIND(map_methods, name.s, name.n);
    case V_SEQ:
        return v.seq->form == SEQ_LIST    ? FIND(list_methods, name.s, name.n)
               : v.seq->form == SEQ_TUPLE ? FIND(tuple_methods, name.s, name.n)
                                          : NULL;
    case V_LOOP:
        return FIND(loop_methods, name.s, name.n);
    default:
        return NULL;
    }
}
