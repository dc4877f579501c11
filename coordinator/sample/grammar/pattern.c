/* `pattern` of a JSON schema: regular expressions of ECMA-262 as far as they are regular and need no look around.
 * What they match is written as JSON writes it: `"`, `\` and controls with their escapes. */
#include <stdlib.h>
#include <string.h>

#include "coordinator/model/utf8.h"
#include "coordinator/sample/grammar.h"
#include "coordinator/sample/grammar/front.h"

enum { RANGES_MAX = 500 }; /* of a class */

struct pattern {
    struct rules *r;
    const char *p, *end, *where;
};
struct code_set {
    struct code_range range[RANGES_MAX];
    size_t n;
    int not;
};

static uint32_t refuse(struct pattern *p, const char *what)
{
    return rules_fail(p->r, -ENOTSUP, "%s: in 'pattern': %s", p->where, what);
}

static int at(const struct pattern *p)
{
    return p->p < p->end && !rules_failed(p->r) ? (unsigned char)*p->p : -1;
}

static void add(struct pattern *p, struct code_set *s, uint32_t lo, uint32_t hi)
{
    if (s->n == RANGES_MAX)
        refuse(p, "a class of too many parts is not supported");
    else if (lo <= hi)
        s->range[s->n++] = (struct code_range){lo, hi};
}

/* ---- characters as JSON has them ---- */

/* A character of the set (not inverted, in any order) in a JSON string. */
static uint32_t inside_string(struct rules *r, const struct code_range *range, size_t n)
{
    static const char *const names = "\b\f\n\r\t\"\\", *const letters = "bfnrt\"\\";
    struct code_range *plain = malloc((3 * n + 1) * sizeof *plain);
    uint32_t item[40];
    size_t n_plain = 0, k = 0;

    if (!plain)
        return rules_fail(r, -ENOMEM, "no memory");
    for (size_t i = 0; i < n; i++) { /* without controls, '"' and '\' */
        static const uint32_t from[] = {0x20, '"' + 1, '\\' + 1}, to[] = {'"' - 1, '\\' - 1, 0x10FFFF};
        for (int j = 0; j < 3; j++) {
            uint32_t lo = range[i].lo > from[j] ? range[i].lo : from[j], hi = range[i].hi < to[j] ? range[i].hi : to[j];
            if (lo <= hi)
                plain[n_plain++] = (struct code_range){lo, hi};
        }
    }
    if (n_plain)
        item[k++] = rules_class(r, plain, n_plain, 0);
    free(plain);
    for (uint32_t c = 0; c <= '\\'; c++) {
        const char *name = c ? strchr(names, (int)c) : NULL;
        char text[8] = {'\\', 'u', '0', '0', (char)('0' + c / 16), "0123456789abcdef"[c % 16]};
        size_t text_n = 6, i = 0;

        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        while (i < n && (c < range[i].lo || c > range[i].hi))
            i++;
        if (i == n)
            continue;
        if (name) {
            text[1] = letters[name - names];
            text_n = 2;
        }
        item[k++] = rules_text(r, text, text_n);
    }
    return k ? rules_alt(r, item, k) : rules_fail(r, -EINVAL, "a class that no character is in");
}

static int by_lo(const void *a, const void *b)
{
    const struct code_range *x = a, *y = b;

    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

/* Turns an inverted set into one that says what is in it. */
static void settle(struct pattern *p, struct code_set *s)
{
    struct code_set in = *s;
    uint32_t next = 0;

    if (!s->not)
        return;
    qsort(in.range, in.n, sizeof *in.range, by_lo);
    s->n = 0;
    s->not = 0;
    for (size_t i = 0; i < in.n; i++) {
        if (in.range[i].lo > next)
            add(p, s, next, in.range[i].lo - 1);
        if (in.range[i].hi >= next)
            next = in.range[i].hi + 1;
    }
    if (next <= 0x10FFFF)
        add(p, s, next, 0x10FFFF);
}

static uint32_t of_set(struct pattern *p, struct code_set *s)
{
    settle(p, s);
    return rules_failed(p->r) ? 0 : inside_string(p->r, s->range, s->n);
}

static uint32_t any_character(struct pattern *p)
{
    return inside_string(p->r, &(struct code_range){0, 0x10FFFF}, 1);
}

/* ---- reading ---- */

static uint32_t literal(struct pattern *p)
{
    size_t len;
    uint32_t c;

    if (at(p) < 0)
        return refuse(p, "the expression ends too early");
    if (utf8_next(p->p, (size_t)(p->end - p->p), &len) != UTF8_OK)
        return refuse(p, "not UTF-8");
    c = (unsigned char)*p->p & (len == 1 ? 0x7F : 0xFF >> (len + 1));
    for (size_t i = 1; i < len; i++)
        c = c << 6 | ((unsigned char)p->p[i] & 0x3F);
    p->p += len;
    return c;
}

static uint32_t hex(struct pattern *p, int digits)
{
    uint32_t v = 0;

    for (p->p++; digits--; p->p++) {
        int c = at(p), low = c | 0x20;
        if (c >= '0' && c <= '9')
            v = v << 4 | (uint32_t)(c - '0');
        else if (low >= 'a' && low <= 'f')
            v = v << 4 | (uint32_t)(low - 'a' + 10);
        else
            return refuse(p, "an escape needs more hexadecimal digits");
    }
    return v;
}

/* \d and its like. 1: it was one. */
static int shorthand(struct pattern *p, struct code_set *s)
{
    static const struct code_range digit[] = {{'0', '9'}}, word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                                   blank[] = {{9, 13},       {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                                              {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                                              {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
    int c = at(p), low = c | 0x20;
    struct code_set t = {.n = 0, .not = c >= 'A' && c <= 'Z'};
    const struct code_range *from = low == 'd' ? digit : low == 'w' ? word : blank;
    size_t n = low == 'd' ? 1 : low == 'w' ? sizeof word / sizeof *word : sizeof blank / sizeof *blank;

    if (low != 'd' && low != 'w' && low != 's')
        return 0;
    p->p++;
    for (size_t i = 0; i < n; i++)
        add(p, &t, from[i].lo, from[i].hi);
    settle(p, &t);
    for (size_t i = 0; i < t.n; i++)
        add(p, s, t.range[i].lo, t.range[i].hi);
    return 1;
}

/* Behind a backslash: one character. */
static uint32_t escaped(struct pattern *p)
{
    static const char *const letters = "nrtvf0", *const codes = "\n\r\t\v\f";
    int c = at(p);
    const char *l = c > 0 ? strchr(letters, c) : NULL;

    if (c == 'x')
        return hex(p, 2);
    if (c == 'u' && p->end - p->p > 1 && p->p[1] == '{')
        return refuse(p, "\\u{...} is not supported");
    if (c == 'u')
        return hex(p, 4);
    if (l && !(c == '0' && p->end - p->p > 1 && p->p[1] >= '0' && p->p[1] <= '9'))
        return p->p++, (unsigned char)codes[l - letters];
    if (c >= '0' && c <= '9')
        return refuse(p, "back references are not supported");
    if (c == 'b' || c == 'B')
        return refuse(p, "\\b and \\B are not supported");
    if (c == 'p' || c == 'P')
        return refuse(p, "\\p{...} is not supported");
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        return refuse(p, "a letter behind a backslash is not supported, except in \\d \\w \\s \\D \\W \\S \\n \\r "
                         "\\t \\v \\f \\xHH \\uHHHH");
    return literal(p);
}

static uint32_t class(struct pattern *p)
{
    struct code_set s = {.n = 0};

    p->p++;
    if (at(p) == '^') {
        p->p++;
        s.not = 1;
    }
    while (at(p) != ']' && !rules_failed(p->r)) {
        uint32_t lo, hi;

        if (at(p) == '\\') {
            p->p++;
            if (shorthand(p, &s))
                continue;
            lo = at(p) == 'b' ? (p->p++, '\b') : escaped(p);
        } else {
            lo = literal(p);
        }
        hi = lo;
        if (at(p) == '-' && p->end - p->p > 1 && p->p[1] != ']') {
            p->p++;
            if (at(p) == '\\') {
                p->p++;
                hi = escaped(p);
            } else {
                hi = literal(p);
            }
        }
        if (lo > hi)
            return refuse(p, "a range that ends before it begins");
        add(p, &s, lo, hi);
    }
    p->p++;
    return of_set(p, &s);
}

static uint32_t alternatives(struct pattern *p, int depth);

static uint32_t group(struct pattern *p, int depth)
{
    uint32_t x;

    if (depth >= GRAMMAR_NESTING_MAX)
        return refuse(p, "groups nested too deeply");
    p->p++;
    if (at(p) == '?') {
        p->p++;
        if (at(p) == ':') {
            p->p++;
        } else if (at(p) == '<' && p->end - p->p > 1 && p->p[1] != '=' && p->p[1] != '!') {
            while (at(p) >= 0 && at(p) != '>')
                p->p++;
            p->p++;
        } else {
            return refuse(p, "looking ahead or behind is not supported");
        }
    }
    x = alternatives(p, depth + 1);
    if (at(p) != ')')
        return refuse(p, "a group is not closed");
    p->p++;
    return x;
}

static uint32_t count(struct pattern *p)
{
    uint32_t v = 0;

    if (at(p) < '0' || at(p) > '9')
        return refuse(p, "'{' is not followed by a number of repetitions");
    for (int c; (c = at(p)) >= '0' && c <= '9'; p->p++)
        if ((v = 10 * v + (uint32_t)(c - '0')) > GRAMMAR_REPEAT_MAX)
            return refuse(p, "too many repetitions");
    return v;
}

static uint32_t repeated(struct pattern *p, uint32_t x)
{
    int c = at(p);
    uint32_t min = c == '+', max = c == '?' ? 1 : REPEAT_ANY;

    if (c != '*' && c != '+' && c != '?' && c != '{')
        return x;
    p->p++;
    if (c == '{') {
        min = max = count(p);
        if (at(p) == ',') {
            p->p++;
            max = at(p) == '}' ? REPEAT_ANY : count(p);
        }
        if (at(p) != '}' || max < min)
            return refuse(p, "a number of repetitions is wrong");
        p->p++;
    }
    if (at(p) == '?') /* as few as possible: the same texts */
        p->p++;
    c = at(p);
    if (c == '*' || c == '+' || c == '?' || c == '{')
        return refuse(p, "a repetition of a repetition needs a group");
    return rules_repeat(p->r, x, min, max);
}

static uint32_t atom(struct pattern *p, int depth)
{
    static const struct code_range line_ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
    struct code_set s = {.n = 0};
    uint32_t c;

    switch (at(p)) {
    case '(':
        return group(p, depth);
    case '[':
        return class(p);
    case '.':
        p->p++;
        s.not = 1;
        for (size_t i = 0; i < 3; i++)
            add(p, &s, line_ends[i].lo, line_ends[i].hi);
        return of_set(p, &s);
    case '\\':
        p->p++;
        if (shorthand(p, &s))
            return of_set(p, &s);
        c = escaped(p);
        break;
    case '^':
    case '$':
        return refuse(p, "^ and $ within an expression are not supported");
    case '*':
    case '+':
    case '?':
    case '{':
        return refuse(p, "there is nothing to repeat before");
    default:
        c = literal(p);
    }
    add(p, &s, c, c);
    return of_set(p, &s);
}

/* One alternative. At depth 0 with its ends: anything, where they have no anchor. */
static uint32_t sequence(struct pattern *p, int depth)
{
    uint32_t x[64], all = TEXT(p->r, "");
    size_t n = 0;
    int open_end = !depth;

    if (!depth && at(p) == '^')
        p->p++;
    else if (!depth)
        x[n++] = rules_repeat(p->r, any_character(p), 0, REPEAT_ANY);
    while (at(p) >= 0 && at(p) != '|' && at(p) != ')') {
        if (!depth && at(p) == '$' && (p->p + 1 == p->end || p->p[1] == '|')) {
            p->p++;
            open_end = 0;
            break;
        }
        if (n == 62) { /* long ones in pieces */
            uint32_t piece = rules_seq(p->r, x, n);
            all = SEQ(p->r, all, piece);
            n = 0;
        }
        x[n] = atom(p, depth);
        x[n] = repeated(p, x[n]);
        n++;
    }
    if (open_end)
        x[n++] = rules_repeat(p->r, any_character(p), 0, REPEAT_ANY);
    x[0] = rules_seq(p->r, x, n);
    return SEQ(p->r, all, x[0]);
}

static uint32_t alternatives(struct pattern *p, int depth)
{
    uint32_t x = sequence(p, depth);

    while (at(p) == '|') {
        uint32_t next;
        p->p++;
        next = sequence(p, depth);
        x = ALT(p->r, x, next);
    }
    return x;
}

uint32_t pattern_read(struct rules *r, const char *text, size_t n, const char *where)
{
    struct pattern p = {r, text, text + n, where};
    uint32_t x = alternatives(&p, 0);

    return at(&p) >= 0 ? refuse(&p, "')' without a group") : x;
}
