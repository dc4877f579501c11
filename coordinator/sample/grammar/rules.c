/* Expressions in one array, each after its parts. What a foreign grammar can ask for is counted here: the number
 * of expressions, their nesting, and with it the recursion of net.c. */
#include "coordinator/sample/grammar/rules_inside.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/sample/grammar.h"

enum {
    EXPRS_MAX = 1 << 20,
    EXPR_NESTING_MAX = 8 * GRAMMAR_NESTING_MAX, /* a level of text is a few of expressions */
};

int rules_new(const char *what, struct rules **out, struct err *e)
{
    struct rules *r = calloc(1, sizeof *r);

    if (!r)
        return err_set(e, -ENOMEM, "no memory for a grammar");
    r->what = what;
    rules_text(r, "", 0); /* expression 0: what calls return after an error */
    *out = r;
    return 0;
}

void rules_free(struct rules *r)
{
    if (!r)
        return;
    free(r->expr);
    free(r->item);
    free(r->range);
    free(r->text);
    free(r->rule);
    free(r->name_slot);
    free(r);
}

int rules_failed(const struct rules *r)
{
    return r->e.code != 0;
}

uint32_t rules_fail(struct rules *r, int code, const char *fmt, ...)
{
    char text[800];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (char *p = text; *p; p++) /* names are foreign, a message is one line */
        if ((unsigned char)*p < 0x20 || *p == 0x7F)
            *p = ' ';
    err_set(&r->e, code, "%s: %s", r->what, text);
    return 0;
}

static int no_memory(struct rules *r)
{
    rules_fail(r, -ENOMEM, "no memory");
    return -1;
}

/* Room for `more` elements behind n. */
static int room(struct rules *r, void *array, size_t n, size_t more, size_t *cap, size_t size)
{
    void **p = array, *q;
    size_t want = n + more, to = *cap ? *cap : 64;

    if (want <= *cap)
        return 0;
    while (to < want)
        to *= 2;
    q = realloc(*p, to * size);
    if (!q)
        return no_memory(r);
    *p = q;
    *cap = to;
    return 0;
}

static uint32_t expr_new(struct rules *r, struct expr x)
{
    if (rules_failed(r))
        return 0;
    if (r->n_exprs >= EXPRS_MAX || x.depth > EXPR_NESTING_MAX)
        return rules_fail(r, -E2BIG, r->n_exprs >= EXPRS_MAX ? "more than %d parts" : "nested too deeply (%d levels of parts)",
                          r->n_exprs >= EXPRS_MAX ? EXPRS_MAX : EXPR_NESTING_MAX);
    if (room(r, &r->expr, r->n_exprs, 1, &r->exprs_cap, sizeof *r->expr))
        return 0;
    r->expr[r->n_exprs] = x;
    return (uint32_t)r->n_exprs++;
}

/* ---- rules ---- */

static uint32_t name_hash(const char *s, size_t n)
{
    uint32_t h = 2166136261u;

    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)s[i]) * 16777619u;
    return h ^ h >> 15;
}

static void name_put(struct rules *r, uint32_t rule)
{
    const struct rule *q = &r->rule[rule];
    size_t i = name_hash(r->text + q->name, q->name_n) & r->name_mask;

    while (r->name_slot[i])
        i = (i + 1) & r->name_mask;
    r->name_slot[i] = rule + 1;
}

static int names_grow(struct rules *r)
{
    size_t slots = r->name_mask ? 2 * (r->name_mask + 1) : 64;
    uint32_t *slot = calloc(slots, sizeof *slot);

    if (!slot)
        return no_memory(r);
    free(r->name_slot);
    r->name_slot = slot;
    r->name_mask = slots - 1;
    for (uint32_t i = 0; i < r->n_rules; i++)
        if (r->rule[i].named)
            name_put(r, i);
    return 0;
}

static uint32_t rule_add(struct rules *r, const char *name, size_t n, unsigned line, int named)
{
    if (rules_failed(r) || room(r, &r->rule, r->n_rules, 1, &r->rules_cap, sizeof *r->rule) ||
        room(r, &r->text, r->n_text, n + 1, &r->text_cap, 1) ||
        (named && 2 * r->n_rules >= r->name_mask && names_grow(r)))
        return 0;
    r->rule[r->n_rules] = (struct rule){.name = r->n_text, .name_n = n, .expr = RULES_NONE, .line = line, .named = named};
    memcpy(r->text + r->n_text, name, n);
    r->text[r->n_text + n] = 0;
    r->n_text += n + 1;
    if (named)
        name_put(r, (uint32_t)r->n_rules);
    return (uint32_t)r->n_rules++;
}

uint32_t rules_rule(struct rules *r, const char *name, size_t n, unsigned line)
{
    for (size_t i = name_hash(name, n) & r->name_mask; r->name_slot && r->name_slot[i]; i = (i + 1) & r->name_mask) {
        const struct rule *q = &r->rule[r->name_slot[i] - 1];
        if (q->name_n == n && !memcmp(r->text + q->name, name, n))
            return r->name_slot[i] - 1;
    }
    return rule_add(r, name, n, line, 1);
}

uint32_t rules_rule_new(struct rules *r, const char *name)
{
    return rule_add(r, name, strlen(name), 0, 0);
}

int rules_defined(const struct rules *r, uint32_t rule)
{
    return rule < r->n_rules && r->rule[rule].expr != RULES_NONE;
}

void rules_define(struct rules *r, uint32_t rule, uint32_t expr)
{
    if (!rules_failed(r))
        r->rule[rule].expr = expr;
}

const char *rules_name(const struct rules *r, uint32_t rule)
{
    return rule < r->n_rules ? r->text + r->rule[rule].name : "";
}

/* ---- expressions ---- */

static uint32_t of_text(struct rules *r, enum expr_kind kind, const char *bytes, size_t n)
{
    if (rules_failed(r) || room(r, &r->text, r->n_text, n + 1, &r->text_cap, 1))
        return 0;
    memcpy(r->text + r->n_text, bytes, n);
    r->n_text += n;
    return expr_new(r, (struct expr){.kind = kind, .a = (uint32_t)(r->n_text - n), .n = (uint32_t)n, .depth = 1});
}

uint32_t rules_text(struct rules *r, const char *bytes, size_t n)
{
    return of_text(r, EXPR_TEXT, bytes, n);
}

uint32_t rules_until(struct rules *r, const char *bytes, size_t n)
{
    return of_text(r, EXPR_UNTIL, bytes, n);
}

static int by_lo(const void *a, const void *b)
{
    const struct code_range *x = a, *y = b;

    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

/* Appends a range of characters, without surrogates. */
static void range_put(struct rules *r, uint32_t lo, uint32_t hi)
{
    if (hi > CODE_MAX)
        hi = CODE_MAX;
    if (lo < SURROGATE_LO && hi >= SURROGATE_LO) {
        range_put(r, lo, SURROGATE_LO - 1);
        lo = SURROGATE_LO;
    }
    if (lo >= SURROGATE_LO && lo <= SURROGATE_HI)
        lo = SURROGATE_HI + 1;
    if (lo <= hi)
        r->range[r->n_ranges++] = (struct code_range){lo, hi};
}

uint32_t rules_class(struct rules *r, const struct code_range *range, size_t n, int not)
{
    struct code_range *sorted = malloc((n + 1) * sizeof *sorted);
    size_t first = r->n_ranges, k = 0;
    uint32_t next = 0;

    if (!sorted)
        no_memory(r);
    if (rules_failed(r) || room(r, &r->range, r->n_ranges, 2 * n + 2, &r->ranges_cap, sizeof *r->range)) {
        free(sorted);
        return 0;
    }
    if (n)
        memcpy(sorted, range, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_lo);
    for (size_t i = 0; i < n; i++) { /* overlapping ones become one */
        if (k && sorted[i].lo <= sorted[k - 1].hi)
            sorted[k - 1].hi = sorted[i].hi > sorted[k - 1].hi ? sorted[i].hi : sorted[k - 1].hi;
        else
            sorted[k++] = sorted[i];
    }
    for (size_t i = 0; i < k; i++) {
        if (!not)
            range_put(r, sorted[i].lo, sorted[i].hi);
        else if (sorted[i].lo > next)
            range_put(r, next, sorted[i].lo - 1);
        next = sorted[i].hi + 1;
    }
    if (not && next <= CODE_MAX)
        range_put(r, next, CODE_MAX);
    free(sorted);
    if (r->n_ranges == first)
        return rules_fail(r, -EINVAL, "a class that no character is in");
    return expr_new(r, (struct expr){.kind = EXPR_CLASS, .a = (uint32_t)first, .n = (uint32_t)(r->n_ranges - first), .depth = 1});
}

static uint32_t of_items(struct rules *r, enum expr_kind kind, const uint32_t *item, size_t n)
{
    unsigned depth = 0;

    if (rules_failed(r) || room(r, &r->item, r->n_items, n, &r->items_cap, sizeof *r->item))
        return 0;
    if (n == 1)
        return item[0];
    for (size_t i = 0; i < n; i++) {
        r->item[r->n_items++] = item[i];
        depth = r->expr[item[i]].depth > depth ? r->expr[item[i]].depth : depth;
    }
    return expr_new(r, (struct expr){.kind = kind, .a = (uint32_t)(r->n_items - n), .n = (uint32_t)n, .depth = depth + 1});
}

uint32_t rules_seq(struct rules *r, const uint32_t *item, size_t n)
{
    return n ? of_items(r, EXPR_SEQ, item, n) : 0;
}

uint32_t rules_alt(struct rules *r, const uint32_t *item, size_t n)
{
    return of_items(r, EXPR_ALT, item, n);
}

uint32_t rules_repeat(struct rules *r, uint32_t x, uint32_t min, uint32_t max)
{
    if (rules_failed(r))
        return 0;
    if ((max == REPEAT_ANY ? min : max) > 1 && r->expr[x].kind >= EXPR_SEQ && r->expr[x].kind < EXPR_RULE) {
        uint32_t once = rules_rule_new(r, ""); /* its states once, and not once a repetition */
        rules_define(r, once, x);
        x = rules_ref(r, once);
    }
    return expr_new(r, (struct expr){.kind = EXPR_REPEAT, .a = x, .n = min, .max = max, .depth = r->expr[x].depth + 1});
}

uint32_t rules_ref(struct rules *r, uint32_t rule)
{
    return expr_new(r, (struct expr){.kind = EXPR_RULE, .a = rule, .depth = 1});
}
