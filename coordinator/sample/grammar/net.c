/* From expressions to the automaton, built from the end of each rule to its start: whoever makes a state knows
 * where its edges lead. Then what must hold for grammar.c to come to an end at each byte: no rule begins with
 * itself, every rule can end. All in time that is linear in the automaton's size. */
#include "coordinator/sample/grammar/rules_inside.h"

#include <stdlib.h>
#include <string.h>

#include "coordinator/sample/grammar.h"

enum {
    EDGES_MAX = 4 * GRAMMAR_SIZE_MAX,
    VISITS_MAX = 8 * GRAMMAR_SIZE_MAX, /* of expressions: repeated empty texts make no states */
    SHARED_TAILS = 32,                 /* ends of characters that a class shares */
};

struct maker {
    struct rules *r;
    struct net *net;
    size_t states_cap, edges_cap, visits;
    uint32_t *owner; /* rule of a state */
    size_t owners_cap;
    uint32_t rule; /* that is made */
};

static int too_large(struct maker *m)
{
    rules_fail(m->r, -E2BIG, "too large: more than %d states", GRAMMAR_SIZE_MAX);
    return -1;
}

static int grow(struct maker *m, void *array, size_t n, size_t more, size_t *cap, size_t size)
{
    void **p = array, *q;
    size_t to = *cap ? *cap : 256;

    if (n + more <= *cap)
        return 0;
    while (to < n + more)
        to *= 2;
    q = realloc(*p, to * size);
    if (!q) {
        rules_fail(m->r, -ENOMEM, "no memory");
        return -1;
    }
    *p = q;
    *cap = to;
    return 0;
}

static uint32_t state_new(struct maker *m, const struct edge *edge, size_t n)
{
    struct net *net = m->net;

    if (rules_failed(m->r))
        return 0;
    if (net->n_states >= GRAMMAR_SIZE_MAX || net->n_edges + n > EDGES_MAX)
        return (uint32_t)(too_large(m), 0);
    if (grow(m, &net->state, net->n_states, 1, &m->states_cap, sizeof *net->state) ||
        grow(m, &m->owner, net->n_states, 1, &m->owners_cap, sizeof *m->owner) ||
        grow(m, &net->edge, net->n_edges, n, &m->edges_cap, sizeof *net->edge))
        return 0;
    net->state[net->n_states] = (struct net_state){(uint32_t)net->n_edges, (uint32_t)n};
    m->owner[net->n_states] = m->rule;
    if (n)
        memcpy(net->edge + net->n_edges, edge, n * sizeof *edge);
    net->n_edges += n;
    return (uint32_t)net->n_states++;
}

static struct edge by_byte(unsigned lo, unsigned hi, uint32_t to)
{
    return (struct edge){.kind = EDGE_BYTE, .lo = (uint8_t)lo, .hi = (uint8_t)hi, .to = to};
}

static struct edge by_nothing(uint32_t to)
{
    return (struct edge){.kind = EDGE_FREE, .to = to};
}

/* ---- characters as bytes ---- */

struct tails { /* states that take one byte lo..hi to `to` */
    struct edge key[SHARED_TAILS];
    uint32_t state[SHARED_TAILS];
    unsigned n;
};
struct heads {
    struct edge *edge;
    size_t n, cap;
};

static uint32_t tail(struct maker *m, struct tails *t, struct edge x)
{
    uint32_t s;

    for (unsigned i = 0; i < t->n; i++)
        if (t->key[i].lo == x.lo && t->key[i].hi == x.hi && t->key[i].to == x.to)
            return t->state[i];
    s = state_new(m, &x, 1);
    if (t->n < SHARED_TAILS) {
        t->key[t->n] = x;
        t->state[t->n++] = s;
    }
    return s;
}

static int encode(uint32_t c, unsigned char *b)
{
    if (c < 0x80)
        return b[0] = (unsigned char)c, 1;
    if (c < 0x800)
        return b[0] = (unsigned char)(0xC0 | c >> 6), b[1] = (unsigned char)(0x80 | (c & 63)), 2;
    if (c < 0x10000) {
        b[0] = (unsigned char)(0xE0 | c >> 12);
        b[1] = (unsigned char)(0x80 | (c >> 6 & 63));
        b[2] = (unsigned char)(0x80 | (c & 63));
        return 3;
    }
    b[0] = (unsigned char)(0xF0 | c >> 18);
    b[1] = (unsigned char)(0x80 | (c >> 12 & 63));
    b[2] = (unsigned char)(0x80 | (c >> 6 & 63));
    b[3] = (unsigned char)(0x80 | (c & 63));
    return 4;
}

/* Characters lo..hi, cut until each piece is a range at every byte. */
static void put_range(struct maker *m, struct tails *t, struct heads *h, uint32_t lo, uint32_t hi, uint32_t next)
{
    static const uint32_t last[] = {0x7F, 0x7FF, 0xFFFF};
    unsigned char a[4], b[4];
    int n;

    for (int i = 0; i < 3; i++)
        if (lo <= last[i] && hi > last[i]) {
            put_range(m, t, h, lo, last[i], next);
            put_range(m, t, h, last[i] + 1, hi, next);
            return;
        }
    for (int i = 1; hi >= 0x80 && i < 4; i++) { /* bits of the last i bytes */
        uint32_t mask = (1u << (6 * i)) - 1;
        if ((lo & ~mask) != (hi & ~mask)) {
            if (lo & mask) {
                put_range(m, t, h, lo, lo | mask, next);
                put_range(m, t, h, (lo | mask) + 1, hi, next);
                return;
            }
            if ((hi & mask) != mask) {
                put_range(m, t, h, lo, (hi & ~mask) - 1, next);
                put_range(m, t, h, hi & ~mask, hi, next);
                return;
            }
        }
    }
    n = encode(lo, a);
    encode(hi, b);
    while (n-- > 1)
        next = tail(m, t, by_byte(a[n], b[n], next));
    if (!grow(m, &h->edge, h->n, 1, &h->cap, sizeof *h->edge))
        h->edge[h->n++] = by_byte(a[0], b[0], next);
}

static uint32_t make_class(struct maker *m, const struct expr *x, uint32_t next)
{
    struct tails t = {.n = 0};
    struct heads h = {0};
    uint32_t s;

    for (uint32_t i = 0; i < x->n && !rules_failed(m->r); i++)
        put_range(m, &t, &h, m->r->range[x->a + i].lo, m->r->range[x->a + i].hi, next);
    s = state_new(m, h.edge, h.n);
    free(h.edge);
    return s;
}

/* ---- expressions ---- */

static uint32_t make_text(struct maker *m, const struct expr *x, uint32_t next)
{
    for (uint32_t i = x->n; i-- && !rules_failed(m->r);) {
        unsigned char c = (unsigned char)m->r->text[x->a + i];
        struct edge e = by_byte(c, c, next);
        next = state_new(m, &e, 1);
    }
    return next;
}

/* State i of n: i bytes of the text are behind us (Knuth, Morris, Pratt). */
static uint32_t make_until(struct maker *m, const struct expr *x, uint32_t next)
{
    const unsigned char *w = (const unsigned char *)m->r->text + x->a;
    uint32_t first = (uint32_t)m->net->n_states, fall = 0;
    uint32_t (*to)[256] = malloc(x->n * sizeof *to); /* to[i][c]: how many are then */

    if (!to)
        return rules_fail(m->r, -ENOMEM, "no memory");
    for (uint32_t i = 0; i < x->n; i++) {
        struct edge e[256];
        size_t n = 0;

        for (unsigned c = 0; c < 256; c++)
            to[i][c] = c == w[i] ? i + 1 : i ? to[fall][c] : 0;
        if (i)
            fall = to[fall][w[i]];
        for (unsigned c = 0; c < 256; c++) {
            uint32_t at = to[i][c] == x->n ? next : first + to[i][c];
            if (n && e[n - 1].to == at)
                e[n - 1].hi = (uint8_t)c;
            else
                e[n++] = by_byte(c, c, at);
        }
        state_new(m, e, n);
    }
    free(to);
    return first;
}

static uint32_t make(struct maker *m, uint32_t expr, uint32_t next);

static uint32_t make_repeat(struct maker *m, const struct expr *x, uint32_t next)
{
    uint32_t min = x->n, s = next;
    struct edge e[2];

    if (x->max == REPEAT_ANY) {
        size_t at;
        e[0] = e[1] = by_nothing(next);
        s = state_new(m, e, 2);
        at = m->net->state ? m->net->state[s].edge : 0;
        e[0].to = make(m, x->a, s);
        if (!rules_failed(m->r))
            m->net->edge[at] = e[0];
    }
    for (uint32_t i = min; x->max != REPEAT_ANY && i < x->max && !rules_failed(m->r); i++) {
        e[0] = by_nothing(make(m, x->a, s));
        e[1] = by_nothing(next);
        s = state_new(m, e, 2);
    }
    for (uint32_t i = 0; i < min && !rules_failed(m->r); i++)
        s = make(m, x->a, s);
    return s;
}

static uint32_t make_alt(struct maker *m, const struct expr *x, uint32_t next)
{
    struct edge *e = malloc(x->n * sizeof *e);
    uint32_t s;

    if (!e)
        return rules_fail(m->r, -ENOMEM, "no memory");
    for (uint32_t i = 0; i < x->n; i++)
        e[i] = by_nothing(make(m, m->r->item[x->a + i], next));
    s = state_new(m, e, x->n);
    free(e);
    return s;
}

/* The state from which `expr` leads to `next`. Recursion: expr.depth. */
static uint32_t make(struct maker *m, uint32_t expr, uint32_t next)
{
    const struct expr *x = &m->r->expr[expr];
    struct edge e;

    if (rules_failed(m->r))
        return 0;
    if (++m->visits > VISITS_MAX)
        return (uint32_t)(too_large(m), 0);
    switch (x->kind) {
    case EXPR_TEXT:
        return make_text(m, x, next);
    case EXPR_UNTIL:
        return make_until(m, x, next);
    case EXPR_CLASS:
        return make_class(m, x, next);
    case EXPR_SEQ:
        for (uint32_t i = x->n; i--;)
            next = make(m, m->r->item[x->a + i], next);
        return next;
    case EXPR_ALT:
        return make_alt(m, x, next);
    case EXPR_REPEAT:
        return make_repeat(m, x, next);
    default:
        e = (struct edge){.kind = EDGE_RULE, .rule = x->a, .to = next};
        return state_new(m, &e, 1);
    }
}

static void make_rules(struct maker *m)
{
    struct net *net = m->net;

    net->n_rules = m->r->n_rules;
    net->start = calloc(net->n_rules + 1, sizeof *net->start);
    if (!net->start)
        rules_fail(m->r, -ENOMEM, "no memory");
    for (uint32_t i = 0; i < net->n_rules && !rules_failed(m->r); i++) {
        const struct rule *q = &m->r->rule[i];
        struct edge e;

        if (q->expr == RULES_NONE && q->line)
            rules_fail(m->r, -EINVAL, "line %u: rule '%.200s' is not defined", q->line, m->r->text + q->name);
        else if (q->expr == RULES_NONE)
            rules_fail(m->r, -EINVAL, "rule '%.200s' is not defined", m->r->text + q->name);
        if (rules_failed(m->r))
            return;
        m->rule = i;
        e = by_nothing(make(m, q->expr, state_new(m, NULL, 0))); /* a start of its own, that is no end */
        net->start[i] = state_new(m, &e, 1);
    }
}

/* ---- what must hold ---- */

/* Which rules can be gone through from start to end; without bytes: with an empty text. done: n_rules. */
static int passable(const struct maker *m, int with_bytes, unsigned char *done)
{
    const struct net *net = m->net;
    uint32_t *todo = malloc(net->n_states * sizeof *todo), *next = malloc(net->n_edges * sizeof *next),
             *wait = malloc(net->n_rules * sizeof *wait);
    unsigned char *seen = calloc(1, net->n_states);
    size_t n = 0;
    int rc = -1;

    if (!todo || !next || !wait || !seen)
        goto end;
    memset(wait, 0xFF, net->n_rules * sizeof *wait); /* RULES_NONE */
    for (size_t i = 0; i < net->n_rules; i++)
        seen[todo[n++] = net->start[i]] = 1;
#define REACH(s)                                                                                   \
    do {                                                                                           \
        if (!seen[s])                                                                              \
            seen[todo[n++] = (s)] = 1;                                                             \
    } while (0)
    while (n) {
        uint32_t s = todo[--n];
        const struct net_state *q = &net->state[s];

        if (net_is_end(net, s) && !done[m->owner[s]]) {
            done[m->owner[s]] = 1;
            for (uint32_t i = wait[m->owner[s]]; i != RULES_NONE; i = next[i])
                REACH(net->edge[i].to);
        }
        for (uint32_t i = q->edge; i < q->edge + q->n_edges; i++) {
            const struct edge *e = &net->edge[i];
            if (e->kind == EDGE_RULE && !done[e->rule]) {
                next[i] = wait[e->rule];
                wait[e->rule] = i;
            } else if (e->kind != EDGE_BYTE || with_bytes) {
                REACH(e->to);
            }
        }
    }
#undef REACH
    rc = 0;
end:
    free(todo);
    free(next);
    free(wait);
    free(seen);
    return rc;
}

/* Strongly connected parts of the graph "stands at, without a byte in between" (Tarjan, without recursion): a rule
 * that is entered within one part begins with itself. */
struct part {
    uint32_t *index, *low, *stack, *path, *at; /* a state each; index 0: not seen */
    uint32_t count, n_stack, n_path;
    unsigned char *open;
};

/* Successor number k of s; RULES_NONE: none of that number, -2 as a number: no more. */
static uint32_t follow(const struct net *net, const unsigned char *nullable, uint32_t s, uint32_t k)
{
    const struct net_state *q = &net->state[s];
    const struct edge *e;

    if (k / 2 >= q->n_edges)
        return RULES_NONE - 1;
    e = &net->edge[q->edge + k / 2];
    if (e->kind == EDGE_RULE)
        return k % 2 ? (nullable[e->rule] ? e->to : RULES_NONE) : net->start[e->rule];
    return e->kind == EDGE_FREE && k % 2 ? e->to : RULES_NONE;
}

static void connect(const struct net *net, const unsigned char *nullable, struct part *p, uint32_t from, uint32_t *part)
{
    p->path[p->n_path++] = from;
    p->index[from] = p->low[from] = ++p->count;
    p->open[p->stack[p->n_stack++] = from] = 1;
    while (p->n_path) {
        uint32_t s = p->path[p->n_path - 1], to = follow(net, nullable, s, p->at[s]++);

        if (to == RULES_NONE)
            continue;
        if (to == RULES_NONE - 1) {
            if (p->low[s] == p->index[s]) {
                uint32_t q;
                do {
                    q = p->stack[--p->n_stack];
                    p->open[q] = 0;
                    part[q] = p->index[s];
                } while (q != s);
            }
            if (--p->n_path && p->low[s] < p->low[p->path[p->n_path - 1]])
                p->low[p->path[p->n_path - 1]] = p->low[s];
        } else if (!p->index[to]) {
            p->index[to] = p->low[to] = ++p->count;
            p->open[p->stack[p->n_stack++] = to] = 1;
            p->path[p->n_path++] = to;
        } else if (p->open[to] && p->index[to] < p->low[s]) {
            p->low[s] = p->index[to];
        }
    }
}

static void check_left(struct maker *m, const unsigned char *nullable)
{
    const struct net *net = m->net;
    size_t n = net->n_states;
    uint32_t *words = calloc(6 * n, sizeof *words), *part = words;
    unsigned char *open = calloc(1, n);
    struct part p = {words + n, words + 2 * n, words + 3 * n, words + 4 * n, words + 5 * n, 0, 0, 0, open};
    uint32_t bad = RULES_NONE;

    if (!words || !open) {
        rules_fail(m->r, -ENOMEM, "no memory");
        goto done;
    }
    for (uint32_t s = 0; s < n; s++)
        if (!p.index[s])
            connect(net, nullable, &p, s, part);
    for (uint32_t s = 0; s < n; s++)
        for (uint32_t i = 0; i < net->state[s].n_edges; i++) {
            const struct edge *e = &net->edge[net->state[s].edge + i];
            if (e->kind == EDGE_RULE && part[s] == part[net->start[e->rule]] &&
                (bad == RULES_NONE || !*rules_name(m->r, bad)))
                bad = e->rule;
        }
    if (bad != RULES_NONE)
        rules_fail(m->r, -EINVAL, "rule '%.200s' begins with itself (left recursion)", rules_name(m->r, bad));
done:
    free(words);
    free(open);
}

static void check(struct maker *m)
{
    unsigned char *done = calloc(2, m->net->n_rules + 1), *nullable = done + m->net->n_rules + 1;

    if (!done || passable(m, 1, done) || passable(m, 0, nullable)) {
        rules_fail(m->r, -ENOMEM, "no memory");
        free(done);
        return;
    }
    check_left(m, nullable);
    for (uint32_t i = 0; i < m->net->n_rules; i++)
        if (!done[i] && *rules_name(m->r, i))
            rules_fail(m->r, -EINVAL, "rule '%.200s' can never end", rules_name(m->r, i));
    free(done);
}

static void classes(struct net *net)
{
    unsigned char begins[257] = {1};

    for (size_t i = 0; i < net->n_edges; i++)
        if (net->edge[i].kind == EDGE_BYTE)
            begins[net->edge[i].lo] = begins[net->edge[i].hi + 1] = 1;
    net->n_classes = 0;
    for (unsigned b = 0; b < 256; b++) {
        if (begins[b])
            net->byte_of[net->n_classes++] = (uint8_t)b;
        net->class_of[b] = (uint8_t)(net->n_classes - 1);
    }
}

int rules_compile(struct rules *r, uint32_t root, struct net *out, struct err *e)
{
    struct maker m = {.r = r, .net = out};

    *out = (struct net){.root = root};
    if (!rules_failed(r))
        make_rules(&m);
    if (!rules_failed(r))
        check(&m);
    free(m.owner);
    if (rules_failed(r)) {
        net_free(out);
        return err_set(e, r->e.code, "%s", r->e.msg);
    }
    classes(out);
    return 0;
}

void net_free(struct net *n)
{
    free(n->state);
    free(n->edge);
    free(n->start);
    *n = (struct net){0};
}
