/* Strings: taken apart and put together with the marks of their bytes kept. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "coordinator/chat/jinja/case_table.h"
#include "coordinator/chat/jinja/value.h"
#include "coordinator/model/unicode_table.h"

/* Does the character at s[p..p+n) count? chars NULL: white space. */
static int stripped(struct str s, size_t p, size_t n, const struct str *chars)
{
    size_t len;

    if (!chars)
        return is_space(point_at(s.s + p, &len));
    for (size_t i = 0; i < chars->n; i += len) {
        point_at(chars->s + i, &len);
        if (len == n && !memcmp(chars->s + i, s.s + p, n))
            return 1;
    }
    return 0;
}

struct str strip(struct run *r, struct str s, const struct str *chars, int sides)
{
    size_t from = 0, to = s.n, len;

    while (sides & LEFT && from < to) {
        point_at(s.s + from, &len);
        work(&r->c, chars ? chars->n : 1);
        if (!stripped(s, from, len, chars))
            break;
        from += len;
    }
    while (sides & RIGHT && to > from) {
        size_t p = to - 1;

        while (((unsigned char)s.s[p] & 0xC0) == 0x80)
            p--;
        work(&r->c, chars ? chars->n : 1);
        if (!stripped(s, p, to - p, chars))
            break;
        to = p;
    }
    return str_slice(s, from, to);
}

ptrdiff_t find(struct str s, struct str needle, size_t from)
{
    const char *at;

    if (!needle.n)
        return (ptrdiff_t)from;
    at = from < s.n ? memmem(s.s + from, s.n - from, needle.s, needle.n) : NULL;
    return at ? at - s.s : -1;
}

/* The last one in s[0..end), or -1. */
static ptrdiff_t find_last(struct run *r, struct str s, struct str needle, size_t end)
{
    for (size_t p = end; p >= needle.n; p--) {
        if (s.s[p - 1] != needle.s[needle.n - 1])
            continue;
        work(&r->c, needle.n);
        if (!memcmp(s.s + p - needle.n, needle.s, needle.n))
            return (ptrdiff_t)(p - needle.n);
    }
    return -1;
}

static void add_slice(struct run *r, struct seq *q, struct str s, size_t from, size_t to)
{
    seq_add(r, q, v_str(str_slice(s, from, to)));
}

static void turn(struct seq *q)
{
    for (size_t i = 0; 2 * i + 1 < q->n; i++) {
        struct value v = q->items[i];

        q->items[i] = q->items[q->n - 1 - i];
        q->items[q->n - 1 - i] = v;
    }
}

static size_t next_space(struct str s, size_t p, int want)
{
    size_t len;

    for (; p < s.n && is_space(point_at(s.s + p, &len)) != want; p += len)
        ;
    return p;
}

/* Runs of white space part; none at the ends. */
static void split_words(struct run *r, struct seq *q, struct str s, int64_t most)
{
    for (size_t p = next_space(s, 0, 0), end; p < s.n; p = next_space(s, end, 0)) {
        end = most >= 0 && (int64_t)q->n == most ? s.n : next_space(s, p, 1);
        add_slice(r, q, s, p, end);
    }
}

static void split_words_back(struct run *r, struct seq *q, struct str s, int64_t most)
{
    while ((s = strip(r, s, NULL, RIGHT)).n) {
        size_t from = s.n, len;

        if (most >= 0 && (int64_t)q->n == most) {
            add_slice(r, q, s, 0, s.n);
            break;
        }
        while (from) {
            size_t p = from - 1;

            while (((unsigned char)s.s[p] & 0xC0) == 0x80)
                p--;
            if (is_space(point_at(s.s + p, &len)))
                break;
            from = p;
        }
        add_slice(r, q, s, from, s.n);
        s = str_slice(s, 0, from);
    }
    turn(q);
}

struct seq *split(struct run *r, struct str s, const struct str *sep, int64_t most, int from_right)
{
    struct seq *q = seq_new(r, SEQ_LIST);
    size_t p = 0, end = s.n;
    ptrdiff_t at;

    work(&r->c, s.n);
    if (!sep) {
        (from_right ? split_words_back : split_words)(r, q, s, most);
        return q;
    }
    if (!sep->n)
        fail(&r->c, JINJA_TYPE, "split with an empty separator");
    if (from_right) {
        while ((most < 0 || (int64_t)q->n < most) && (at = find_last(r, s, *sep, end)) >= 0) {
            add_slice(r, q, s, (size_t)at + sep->n, end);
            end = (size_t)at;
        }
        add_slice(r, q, s, 0, end);
        turn(q);
        return q;
    }
    while ((most < 0 || (int64_t)q->n < most) && (at = find(s, *sep, p)) >= 0) {
        add_slice(r, q, s, p, (size_t)at);
        p = (size_t)at + sep->n;
    }
    add_slice(r, q, s, p, s.n);
    return q;
}

struct str replace(struct run *r, struct str s, struct str old, struct str new, int64_t most)
{
    struct buf b = {0};
    size_t p = 0, len;
    ptrdiff_t at;

    if (!most)
        return s;
    work(&r->c, s.n);
    if (!old.n) { /* between all characters, and at both ends */
        int64_t n = 0;

        for (; p < s.n && (most < 0 || n < most); n++, p += len) {
            buf_add(&r->c, &b, new);
            point_at(s.s + p, &len);
            buf_add(&r->c, &b, str_slice(s, p, p + len));
        }
        if (most < 0 || n < most)
            buf_add(&r->c, &b, new);
    } else {
        for (int64_t n = 0; (most < 0 || n < most) && (at = find(s, old, p)) >= 0; n++) {
            buf_add(&r->c, &b, str_slice(s, p, (size_t)at));
            buf_add(&r->c, &b, new);
            p = (size_t)at + old.n;
        }
    }
    buf_add(&r->c, &b, str_slice(s, p, s.n));
    return buf_str(&b);
}

static int ends_line(uint32_t u)
{
    return (u >= 10 && u <= 13) || (u >= 0x1C && u <= 0x1E) || u == 0x85 || u == 0x2028 || u == 0x2029;
}

struct seq *split_lines(struct run *r, struct str s, int keep_ends)
{
    struct seq *q = seq_new(r, SEQ_LIST);
    size_t from = 0, len;

    work(&r->c, s.n);
    for (size_t p = 0; p < s.n; p += len) {
        size_t end = p;

        if (!ends_line(point_at(s.s + p, &len)))
            continue;
        if (s.s[p] == '\r' && p + 1 < s.n && s.s[p + 1] == '\n')
            len = 2;
        add_slice(r, q, s, from, keep_ends ? end + len : end);
        from = p + len;
    }
    if (from < s.n)
        add_slice(r, q, s, from, s.n);
    return q;
}

/* ---- case ---- */

static uint32_t in_ranges(const struct case_range *t, size_t n, uint32_t u, int *found)
{
    size_t lo = 0, hi = n;

    while (lo < hi) { /* the last range that begins at or before u... */
        size_t mid = (lo + hi) / 2;

        if (t[mid].first <= u)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (size_t k = 0; k < 2 && lo > k; k++) { /* ... or, of two with stride 2, the one before */
        const struct case_range *x = &t[lo - 1 - k];

        if (u <= x->last && (u - x->first) % (uint32_t)x->stride == 0) {
            *found = 1;
            return u + (uint32_t)x->delta;
        }
    }
    *found = 0;
    return u;
}

static const struct case_long *in_long(const struct case_long *t, size_t n, uint32_t u)
{
    for (size_t i = 0; i < n; i++)
        if (t[i].from == u)
            return &t[i];
    return NULL;
}

#define N(t) (sizeof(t) / sizeof *(t))
static void add_cased(struct run *r, struct buf *b, uint32_t u, enum letters how, int mark)
{
    const struct case_long *l = NULL;
    int found = 0;
    uint32_t to = u;

    step(&r->c);
    if (how == TITLE) {
        l = in_long(case_title_long, N(case_title_long), u);
        if (!l)
            to = in_ranges(case_title, N(case_title), u, &found);
    }
    if (!l && !found && how != LOWER) {
        l = in_long(case_upper_long, N(case_upper_long), u);
        to = in_ranges(case_upper, N(case_upper), u, &found);
    } else if (how == LOWER) {
        l = in_long(case_lower_long, N(case_lower_long), u);
        to = in_ranges(case_lower, N(case_lower), u, &found);
    }
    for (int i = 0; l && i < 3 && l->to[i]; i++)
        buf_point(&r->c, b, l->to[i], mark);
    if (!l)
        buf_point(&r->c, b, to, mark);
}

struct str change_case(struct run *r, struct str s, enum letters how)
{
    struct buf b = {0};
    int cased = 0; /* the character before has a case */
    size_t len;

    work(&r->c, s.n);
    for (size_t p = 0; p < s.n; p += len) {
        uint32_t u = point_at(s.s + p, &len);
        enum unicode_class k = unicode_class(u);
        enum letters this = how == TITLE        ? (cased ? LOWER : TITLE)
                            : how == CAPITALIZE ? (p ? LOWER : TITLE)
                                                : how;

        cased = k == UNICODE_UPPER || k == UNICODE_LOWER;
        if (u < 0x80 && !(this == LOWER ? u >= 'A' && u <= 'Z' : u >= 'a' && u <= 'z'))
            buf_add(&r->c, &b, str_slice(s, p, p + 1));
        else
            add_cased(r, &b, u, this, str_mark(s, p));
    }
    return buf_str(&b);
}

/* ---- formats ---- */

/* %s %d %i %r %f (with .N) %%, and %(name)s. */
struct str format_percent(struct run *r, struct str f, struct value *args, size_t n, const struct map *named)
{
    struct buf b = {0};
    size_t used = 0, run = 0;

    for (size_t p = 0; p < f.n; p++) {
        struct value v = v_none();
        int digits = 6;
        char number[420];

        if (f.s[p] != '%')
            continue;
        buf_add(&r->c, &b, str_slice(f, run, p));
        if (++p >= f.n)
            fail(&r->c, JINJA_TYPE, "a format ends behind %%");
        if (f.s[p] == '%') {
            buf_char(&r->c, &b, '%', str_mark(f, p));
            run = p + 1;
            continue;
        }
        if (f.s[p] == '(') {
            size_t from = p + 1;
            const struct value *found;

            while (p < f.n && f.s[p] != ')')
                p++;
            found = p < f.n && named ? map_find(r, named, v_str(str_slice(f, from, p))) : NULL;
            if (!found || ++p >= f.n)
                fail(&r->c, JINJA_TYPE, "a format asks for a name that is not given");
            v = *found;
        } else {
            if (used == n)
                fail(&r->c, JINJA_TYPE, "a format asks for more than %zu values", n);
            v = args[used++];
        }
        if (p + 1 < f.n && f.s[p] == '.' && f.s[p + 1] >= '0' && f.s[p + 1] <= '9') {
            digits = f.s[p + 1] - '0';
            p += 2;
        }
        switch (p < f.n ? f.s[p] : 0) {
        case 's':
            print(r, &b, v);
            break;
        case 'r':
            print_repr(r, &b, v);
            break;
        case 'd':
        case 'i':
            if (v.kind == V_FLOAT && v.f > -0x1p63 && v.f < 0x1p63)
                v = v_int((int64_t)v.f);
            if (v.kind == V_BOOL)
                v.kind = V_INT;
            if (v.kind != V_INT && v.kind != V_BIG)
                fail_type(r, "%d in a format", v);
            print(r, &b, v);
            break;
        case 'f':
            if (v.kind == V_INT || v.kind == V_BOOL)
                v = v_float((double)v.i);
            if (v.kind != V_FLOAT)
                fail_type(r, "%f in a format", v);
            snprintf(number, sizeof number, "%.*f", digits, v.f);
            buf_bytes(&r->c, &b, number, strlen(number), 0);
            break;
        default:
            fail(&r->c, JINJA_SYNTAX, "a format's %% with '%c' is not supported (s, d, i, r, f are)",
                 p < f.n && f.s[p] > 0x20 && f.s[p] < 0x7F ? f.s[p] : '?');
        }
        run = p + 1;
    }
    if (!named && used < n)
        fail(&r->c, JINJA_TYPE, "a format has %zu values too many", n - used);
    buf_add(&r->c, &b, str_slice(f, run < f.n ? run : f.n, f.n));
    return buf_str(&b);
}

static struct value brace_value(struct run *r, struct str name, size_t *next, const struct args *a)
{
    size_t i = 0;

    if (!name.n) {
        i = (*next)++;
    } else if (name.s[0] >= '0' && name.s[0] <= '9') {
        for (size_t p = 0; p < name.n; p++) {
            if (name.s[p] < '0' || name.s[p] > '9' || i > 1000)
                fail(&r->c, JINJA_SYNTAX, "format: '{%.*s}' is not supported", name.n > 60 ? 60 : (int)name.n, name.s);
            i = 10 * i + (size_t)(name.s[p] - '0');
        }
    } else {
        for (size_t k = 0; k < a->n_kw; k++)
            if (str_is(name, a->kw[k].name))
                return a->kw[k].value;
        fail(&r->c, JINJA_TYPE, "format: '{%.*s}' has no value", name.n > 60 ? 60 : (int)name.n, name.s);
    }
    if (i >= a->n_pos)
        fail(&r->c, JINJA_TYPE, "format: it asks for more than %zu values", a->n_pos);
    return a->pos[i];
}

/* '{} {0} {name} {{ }}'.format(...) */
struct str format_braces(struct run *r, struct str f, struct args *a)
{
    struct buf b = {0};
    size_t next = 0;

    for (size_t p = 0; p < f.n; p++) {
        size_t from = p + 1;

        if (f.s[p] != '{' && f.s[p] != '}') {
            buf_add(&r->c, &b, str_slice(f, p, p + 1));
            continue;
        }
        if (p + 1 < f.n && f.s[p + 1] == f.s[p]) {
            buf_add(&r->c, &b, str_slice(f, p, p + 1));
            p++;
            continue;
        }
        while (p < f.n && f.s[p] != '}' && f.s[p] != ':' && f.s[p] != '!' && f.s[p] != '.' && f.s[p] != '[')
            p++;
        if (f.s[from - 1] == '}' || p >= f.n)
            fail(&r->c, JINJA_TYPE, "format: a single brace");
        if (f.s[p] != '}')
            fail(&r->c, JINJA_SYNTAX, "format: '%c' in braces is not supported", f.s[p]);
        print(r, &b, brace_value(r, str_slice(f, from, p), &next, a));
    }
    return buf_str(&b);
}

static const char *const days[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
static const char *const months[] = {"January", "February", "March", "April", "May", "June", "July",
                                     "August", "September", "October", "November", "December"};

/* strftime in English, whatever the locale is. */
struct str format_time(struct run *r, struct str f)
{
    const struct tm *t = r->now;
    struct buf b = {0};

    if (!t)
        fail(&r->c, JINJA_RUNTIME, "strftime_now: no clock was given");
    for (size_t p = 0; p < f.n; p++) {
        char text[32];
        int hour = t->tm_hour % 12;

        if (f.s[p] != '%') {
            buf_add(&r->c, &b, str_slice(f, p, p + 1));
            continue;
        }
        p++;
        switch (p < f.n ? f.s[p] : 0) {
        case 'Y':
            snprintf(text, sizeof text, "%d", t->tm_year + 1900);
            break;
        case 'y':
            snprintf(text, sizeof text, "%02d", (t->tm_year % 100 + 100) % 100);
            break;
        case 'm':
            snprintf(text, sizeof text, "%02d", t->tm_mon + 1);
            break;
        case 'd':
            snprintf(text, sizeof text, "%02d", t->tm_mday);
            break;
        case 'H':
            snprintf(text, sizeof text, "%02d", t->tm_hour);
            break;
        case 'I':
            snprintf(text, sizeof text, "%02d", hour ? hour : 12);
            break;
        case 'M':
            snprintf(text, sizeof text, "%02d", t->tm_min);
            break;
        case 'S':
            snprintf(text, sizeof text, "%02d", t->tm_sec);
            break;
        case 'j':
            snprintf(text, sizeof text, "%03d", t->tm_yday + 1);
            break;
        case 'p':
            snprintf(text, sizeof text, "%s", t->tm_hour < 12 ? "AM" : "PM");
            break;
        case 'A':
            snprintf(text, sizeof text, "%s", days[(unsigned)t->tm_wday % 7]);
            break;
        case 'a':
            snprintf(text, sizeof text, "%.3s", days[(unsigned)t->tm_wday % 7]);
            break;
        case 'B':
            snprintf(text, sizeof text, "%s", months[(unsigned)t->tm_mon % 12]);
            break;
        case 'b':
            snprintf(text, sizeof text, "%.3s", months[(unsigned)t->tm_mon % 12]);
            break;
        case '%':
            snprintf(text, sizeof text, "%%");
            break;
        default:
            fail(&r->c, JINJA_SYNTAX, "strftime_now: %%%c is not supported",
                 p < f.n && f.s[p] > 0x20 && f.s[p] < 0x7F ? f.s[p] : '?');
        }
        buf_bytes(&r->c, &b, text, strlen(text), 0);
    }
    return buf_str(&b);
}
