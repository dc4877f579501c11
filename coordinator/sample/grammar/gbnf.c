/* GBNF, as llama.cpp reads it: rules `name ::= alternatives`, texts in quotes, classes, groups, repetitions, comments.
 * More than there: `_` in names, `|` at the beginning of a line. Not here: tokens in angle brackets. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/model/utf8.h"
#include "coordinator/sample/grammar.h"
#include "coordinator/sample/grammar/front.h"

struct gbnf {
    struct rules *r;
    const char *p, *end; /* *end is never read */
    unsigned line;
    uint32_t *item; /* of the sequences and alternatives that are open */
    size_t n_items, items_cap;
    struct code_range *range;
    size_t ranges_cap;
};

static int at(const struct gbnf *g)
{
    return g->p < g->end && !rules_failed(g->r) ? (unsigned char)*g->p : -1;
}

static int after(const struct gbnf *g)
{
    return g->end - g->p > 1 ? (unsigned char)g->p[1] : -1;
}

static uint32_t bad(struct gbnf *g, const char *what)
{
    int c = at(g);

    if (c < 0)
        return rules_fail(g->r, -EINVAL, "line %u: %s; the text ends", g->line, what);
    return rules_fail(g->r, -EINVAL, "line %u: %s; found '%.*s'", g->line, what, c < 0x80 ? 1 : 0, g->p);
}

static int is_name(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* White space and comments; newlines only if they mean nothing here. */
static void space(struct gbnf *g, int newlines)
{
    for (int c; (c = at(g)) == ' ' || c == '\t' || c == '#' || (newlines && (c == '\r' || c == '\n')); g->p++) {
        while (c == '#' && g->p + 1 < g->end && g->p[1] != '\r' && g->p[1] != '\n')
            g->p++;
        g->line += c == '\n';
    }
}

/* At the end of a line: does the next one go on with `|`? Then it is next. */
static int goes_on(struct gbnf *g)
{
    struct gbnf was = *g;

    space(g, 1);
    if (at(g) == '|')
        return 1;
    g->p = was.p;
    g->line = was.line;
    return 0;
}

static void push(struct gbnf *g, uint32_t x)
{
    if (g->n_items == g->items_cap) {
        size_t cap = g->items_cap ? 2 * g->items_cap : 64;
        uint32_t *p = realloc(g->item, cap * sizeof *p);

        if (!p) {
            rules_fail(g->r, -ENOMEM, "no memory");
            return;
        }
        g->item = p;
        g->items_cap = cap;
    }
    g->item[g->n_items++] = x;
}

static uint32_t hex(struct gbnf *g, int digits)
{
    uint32_t v = 0;

    for (g->p++; digits--; g->p++) {
        int c = at(g), low = c | 0x20;
        if (c >= '0' && c <= '9')
            v = v << 4 | (uint32_t)(c - '0');
        else if (low >= 'a' && low <= 'f')
            v = v << 4 | (uint32_t)(low - 'a' + 10);
        else
            return bad(g, "an escape needs more hexadecimal digits");
    }
    return v;
}

/* One character of a text or a class. */
static uint32_t character(struct gbnf *g)
{
    size_t len;
    uint32_t c;

    if (at(g) == '\\') {
        g->p++;
        switch (at(g)) {
        case 'x':
            return hex(g, 2);
        case 'u':
            return hex(g, 4);
        case 'U':
            return hex(g, 8);
        case 't':
            return g->p++, '\t';
        case 'r':
            return g->p++, '\r';
        case 'n':
            return g->p++, '\n';
        case '\\':
        case '"':
        case '[':
        case ']':
            return (unsigned char)*g->p++;
        default:
            return bad(g, "an escape is one of \\\\ \\\" \\[ \\] \\n \\r \\t \\xHH \\uHHHH \\UHHHHHHHH");
        }
    }
    if (at(g) < 0)
        return bad(g, "a text or class is not closed");
    if (utf8_next(g->p, (size_t)(g->end - g->p), &len) != UTF8_OK)
        return bad(g, "the grammar is not UTF-8");
    c = (unsigned char)*g->p & (len == 1 ? 0x7F : 0xFF >> (len + 1));
    for (size_t i = 1; i < len; i++)
        c = c << 6 | ((unsigned char)g->p[i] & 0x3F);
    g->p += len;
    return c;
}

static size_t encode(struct gbnf *g, uint32_t c, char *out)
{
    if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) {
        rules_fail(g->r, -EINVAL, "line %u: U+%X is no character", g->line, c);
        return 0;
    }
    if (c < 0x80)
        return out[0] = (char)c, 1;
    if (c < 0x800)
        return out[0] = (char)(0xC0 | c >> 6), out[1] = (char)(0x80 | (c & 63)), 2;
    if (c < 0x10000)
        return out[0] = (char)(0xE0 | c >> 12), out[1] = (char)(0x80 | (c >> 6 & 63)), out[2] = (char)(0x80 | (c & 63)), 3;
    out[0] = (char)(0xF0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 63));
    out[2] = (char)(0x80 | (c >> 6 & 63));
    out[3] = (char)(0x80 | (c & 63));
    return 4;
}

static uint32_t literal(struct gbnf *g)
{
    size_t n = 1;
    uint32_t x;
    char *text;

    while (g->p + n < g->end && g->p[n] != '"')
        n += 1 + (g->p[n] == '\\');
    text = malloc(n + 1); /* no escape is shorter than its character */
    n = 0;

    if (!text)
        return rules_fail(g->r, -ENOMEM, "no memory");
    for (g->p++; at(g) != '"' && !rules_failed(g->r);) {
        uint32_t c = character(g);
        if (!rules_failed(g->r))
            n += encode(g, c, text + n);
    }
    g->p++;
    x = rules_text(g->r, text, n);
    free(text);
    return x;
}

static uint32_t class(struct gbnf *g)
{
    size_t n = 0;
    int not = 0;

    g->p++;
    if (at(g) == '^') {
        g->p++;
        not = 1;
    }
    while (at(g) != ']' && !rules_failed(g->r)) {
        struct code_range x;

        x.lo = x.hi = character(g);
        if (at(g) == '-' && after(g) != ']' && after(g) >= 0) {
            g->p++;
            x.hi = character(g);
        }
        if (rules_failed(g->r))
            return 0;
        if (x.lo > x.hi || x.hi > 0x10FFFF)
            return rules_fail(g->r, -EINVAL, "line %u: a range from U+%X to U+%X", g->line, x.lo, x.hi);
        if (n == g->ranges_cap) {
            size_t cap = n ? 2 * n : 16;
            struct code_range *p = realloc(g->range, cap * sizeof *p);

            if (!p)
                return rules_fail(g->r, -ENOMEM, "no memory");
            g->range = p;
            g->ranges_cap = cap;
        }
        g->range[n++] = x;
    }
    g->p++;
    if (!n && !not)
        return rules_fail(g->r, -EINVAL, "line %u: a class that no character is in", g->line);
    return rules_class(g->r, g->range, n, not);
}

static uint32_t number(struct gbnf *g)
{
    uint32_t v = 0;

    if (at(g) < '0' || at(g) > '9')
        return bad(g, "a number of repetitions was expected");
    for (int c; (c = at(g)) >= '0' && c <= '9'; g->p++)
        if ((v = 10 * v + (uint32_t)(c - '0')) > GRAMMAR_REPEAT_MAX)
            return rules_fail(g->r, -E2BIG, "line %u: more than %d repetitions", g->line, GRAMMAR_REPEAT_MAX);
    return v;
}

/* {m}, {m,}, {m,n} */
static uint32_t counted(struct gbnf *g, uint32_t x, int newlines)
{
    uint32_t min, max;

    g->p++;
    space(g, newlines);
    min = max = number(g);
    space(g, newlines);
    if (at(g) == ',') {
        g->p++;
        space(g, newlines);
        max = at(g) == '}' ? REPEAT_ANY : number(g);
        space(g, newlines);
    }
    if (at(g) != '}')
        return bad(g, "'}' was expected");
    g->p++;
    if (max < min)
        return rules_fail(g->r, -EINVAL, "line %u: at least %u repetitions and at most %u", g->line, min, max);
    return rules_repeat(g->r, x, min, max);
}

static uint32_t alternatives(struct gbnf *g, int depth);

static uint32_t group(struct gbnf *g, int depth)
{
    uint32_t x;

    if (depth >= GRAMMAR_NESTING_MAX)
        return rules_fail(g->r, -E2BIG, "line %u: more than %d groups inside each other", g->line, GRAMMAR_NESTING_MAX);
    g->p++;
    space(g, 1);
    x = alternatives(g, depth + 1);
    if (at(g) != ')')
        return bad(g, "')' was expected");
    g->p++;
    return x;
}

static uint32_t reference(struct gbnf *g)
{
    const char *name = g->p;

    while (is_name(at(g)))
        g->p++;
    return rules_ref(g->r, rules_rule(g->r, name, (size_t)(g->p - name), g->line));
}

static uint32_t sequence(struct gbnf *g, int depth)
{
    size_t first = g->n_items;
    uint32_t x;

    for (;;) {
        int c = at(g), repeats = c == '?' || c == '*' || c == '+' || c == '{';

        if (repeats && g->n_items == first)
            return bad(g, "there is nothing to repeat before");
        x = repeats ? g->item[--g->n_items] : 0;
        if (c == '"')
            push(g, literal(g));
        else if (c == '[')
            push(g, class(g));
        else if (c == '(')
            push(g, group(g, depth));
        else if (is_name(c))
            push(g, reference(g));
        else if (c == '.')
            g->p++, push(g, rules_class(g->r, NULL, 0, 1));
        else if (c == '{')
            push(g, counted(g, x, depth > 0));
        else if (repeats)
            g->p++, push(g, rules_repeat(g->r, x, c == '+', c == '?' ? 1 : REPEAT_ANY));
        else if (c == '<' || c == '!')
            return bad(g, "tokens in angle brackets are not supported; give their text in quotes");
        else
            break;
        space(g, depth > 0);
    }
    x = g->n_items > first ? rules_seq(g->r, g->item + first, g->n_items - first) : TEXT(g->r, "");
    g->n_items = first;
    return x;
}

static uint32_t alternatives(struct gbnf *g, int depth)
{
    size_t first = g->n_items;
    uint32_t x = sequence(g, depth);

    push(g, x);
    while (at(g) == '|' || (!depth && (at(g) == '\n' || at(g) == '\r') && goes_on(g))) {
        g->p++;
        space(g, 1);
        x = sequence(g, depth);
        push(g, x);
    }
    if (rules_failed(g->r))
        return 0;
    x = rules_alt(g->r, g->item + first, g->n_items - first);
    g->n_items = first;
    return x;
}

static void rule(struct gbnf *g)
{
    const char *name = g->p;
    size_t n;
    uint32_t q;

    while (is_name(at(g)))
        g->p++;
    n = (size_t)(g->p - name);
    if (!n) {
        bad(g, "the name of a rule was expected");
        return;
    }
    q = rules_rule(g->r, name, n, g->line);
    space(g, 0);
    if (at(g) != ':' || g->end - g->p < 3 || memcmp(g->p, "::=", 3)) {
        bad(g, "'::=' was expected behind a rule's name");
        return;
    }
    if (rules_defined(g->r, q)) {
        rules_fail(g->r, -EINVAL, "line %u: rule '%.200s' is defined twice", g->line, rules_name(g->r, q));
        return;
    }
    g->p += 3;
    space(g, 1);
    rules_define(g->r, q, alternatives(g, 0));
    if (at(g) >= 0 && at(g) != '\n' && at(g) != '\r')
        bad(g, "the end of the rule was expected");
    space(g, 1);
}

uint32_t gbnf_read(struct rules *r, const char *text, size_t n)
{
    struct gbnf g = {.r = r, .p = text, .end = text + n, .line = 1};
    uint32_t root;

    if (n > GRAMMAR_TEXT_MAX)
        return rules_fail(r, -E2BIG, "%zu bytes, more than %d", n, GRAMMAR_TEXT_MAX);
    space(&g, 1);
    while (at(&g) >= 0)
        rule(&g);
    root = rules_rule(r, "root", 4, 0);
    if (!rules_failed(r) && !rules_defined(r, root))
        rules_fail(r, -EINVAL, "there is no rule 'root'");
    free(g.item);
    free(g.range);
    return root;
}
