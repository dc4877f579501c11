/* The automaton made deterministic as far as texts go there. A foreign grammar decides how much that is: each call
 * has a bound on its work, each set on its ways, and all of them together on their memory. */
#include "coordinator/sample/grammar/sets.h"

#include <stdlib.h>
#include <string.h>

#include "coordinator/sample/grammar.h"

enum {
    SET_NOT_KNOWN = UINT32_MAX,
    BYTES_WANTED = 32 << 20,  /* then sets_full */
    BYTES_MAX = 256 << 20,    /* within one call */
    WORK_MAX = 500 * 1000,    /* stacks that one call looks at: part of a second */
    PLAIN_STEPS_MAX = 4000,   /* looking for plain text must cost less than it saves */
};

static int no_memory(struct err *e)
{
    return err_set(e, -ENOMEM, "no memory for a grammar's states");
}

static int room(void *array, size_t n, size_t more, size_t *cap, size_t size, struct err *e)
{
    void **p = array, *q;
    size_t to = *cap ? *cap : 256;

    if (n + more <= *cap)
        return 0;
    while (to < n + more)
        to *= 2;
    q = realloc(*p, to * size);
    if (!q)
        return no_memory(e);
    *p = q;
    *cap = to;
    return 0;
}

static uint32_t mix(uint64_t h)
{
    h *= 0x9E3779B97F4A7C15u;
    return (uint32_t)(h >> 32);
}

/* ---- stacks ---- */

static uint32_t stack_hash(uint32_t state, uint32_t below)
{
    return mix((uint64_t)state << 32 ^ below ^ (uint64_t)below << 40);
}

static int rehash_stacks(struct sets *s, struct err *e)
{
    size_t slots = s->stack_mask ? 2 * (s->stack_mask + 1) : 1024;
    uint32_t *slot = calloc(slots, sizeof *slot);

    if (!slot)
        return no_memory(e);
    free(s->stack_slot);
    s->stack_slot = slot;
    s->stack_mask = slots - 1;
    for (uint32_t i = 1; i < s->n_stacks; i++) {
        size_t at = stack_hash(s->stack[i].state, s->stack[i].below) & s->stack_mask;
        while (slot[at])
            at = (at + 1) & s->stack_mask;
        slot[at] = i;
    }
    return 0;
}

static int stack_get(struct sets *s, uint32_t state, uint32_t below, uint32_t *out, struct err *e)
{
    size_t at;

    if (2 * s->n_stacks >= s->stack_mask && rehash_stacks(s, e))
        return e->code;
    for (at = stack_hash(state, below) & s->stack_mask; s->stack_slot[at]; at = (at + 1) & s->stack_mask) {
        *out = s->stack_slot[at];
        if (s->stack[*out].state == state && s->stack[*out].below == below)
            return 0;
    }
    if (room(&s->stack, s->n_stacks, 1, &s->stacks_cap, sizeof *s->stack, e))
        return e->code;
    s->stack[s->n_stacks] = (struct stack){state, below, s->stack[below].depth + 1, 0};
    *out = s->stack_slot[at] = (uint32_t)s->n_stacks++;
    return 0;
}

/* ---- what can be reached without a byte ---- */

static int todo_put(struct sets *s, size_t *n, uint32_t state, uint32_t below, struct err *e)
{
    uint32_t k;

    if (stack_get(s, state, below, &k, e) || room(&s->todo, *n, 1, &s->todo_cap, sizeof *s->todo, e))
        return e->code;
    if (s->stack[k].seen != s->closure) {
        s->stack[k].seen = s->closure;
        s->todo[(*n)++] = k;
    }
    return 0;
}

static int found_put(struct sets *s, uint32_t k, struct err *e)
{
    if (s->n_found >= GRAMMAR_WAYS_MAX)
        return err_set(e, -E2BIG, "the grammar has more than %d ways to read this answer", GRAMMAR_WAYS_MAX);
    if (room(&s->found, s->n_found, 1, &s->found_cap, sizeof *s->found, e))
        return e->code;
    s->found[s->n_found++] = k;
    return 0;
}

/* One more stack in the closure: itself if it reads a byte, and what it leads to without one. */
static int spread(struct sets *s, uint32_t k, size_t *n, struct err *e)
{
    struct stack top = s->stack[k];
    const struct net_state *q = &s->net.state[top.state];
    int reads = 0, rc = 0;

    if (net_is_end(&s->net, top.state)) {
        if (top.below)
            return todo_put(s, n, s->stack[top.below].state, s->stack[top.below].below, e);
        if (s->stack[0].seen == s->closure)
            return 0;
        s->stack[0].seen = s->closure;
        return found_put(s, 0, e);
    }
    for (uint32_t i = q->edge; i < q->edge + q->n_edges && !rc; i++) {
        const struct edge *x = &s->net.edge[i];
        uint32_t below = top.below;

        reads |= x->kind == EDGE_BYTE;
        if (x->kind == EDGE_FREE)
            rc = todo_put(s, n, x->to, below, e);
        if (x->kind != EDGE_RULE)
            continue;
        if (!net_is_end(&s->net, x->to)) { /* else: the end of a rule has nothing to come back for */
            if (s->stack[below].depth >= GRAMMAR_DEPTH_MAX)
                continue;
            rc = stack_get(s, x->to, below, &below, e);
        }
        if (!rc)
            rc = todo_put(s, n, s->net.start[x->rule], below, e);
    }
    s->work += q->n_edges + 1;
    return rc ? rc : reads ? found_put(s, k, e) : 0;
}

static int close_over(struct sets *s, size_t n, struct err *e)
{
    while (n) {
        uint32_t k = s->todo[--n];
        if (spread(s, k, &n, e))
            return e->code;
        if (s->work > s->work_end)
            return err_set(e, -E2BIG, "the grammar needs too much work at this place of the answer");
    }
    return 0;
}

/* ---- sets ---- */

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static uint32_t set_hash(const uint32_t *member, size_t n)
{
    uint64_t h = n;

    for (size_t i = 0; i < n; i++)
        h = (h ^ member[i]) * 0x9E3779B97F4A7C15u, h ^= h >> 29;
    return mix(h);
}

static int rehash_sets(struct sets *s, struct err *e)
{
    size_t slots = s->set_mask ? 2 * (s->set_mask + 1) : 256;
    uint32_t *slot = calloc(slots, sizeof *slot);

    if (!slot)
        return no_memory(e);
    free(s->set_slot);
    s->set_slot = slot;
    s->set_mask = slots - 1;
    for (uint32_t i = 1; i < s->n_sets; i++) {
        size_t at = set_hash(s->member + s->set[i].first, s->set[i].n) & s->set_mask;
        while (slot[at])
            at = (at + 1) & s->set_mask;
        slot[at] = i;
    }
    return 0;
}

/* The set of s->found. */
static int set_get(struct sets *s, uint32_t *out, struct err *e)
{
    size_t n = s->n_found, at;
    struct set *q;

    *out = SET_DEAD;
    if (!n)
        return 0;
    if (n > 1)
        qsort(s->found, n, sizeof *s->found, by_number);
    if (2 * s->n_sets >= s->set_mask && rehash_sets(s, e))
        return e->code;
    for (at = set_hash(s->found, n) & s->set_mask; s->set_slot[at]; at = (at + 1) & s->set_mask) {
        q = &s->set[*out = s->set_slot[at]];
        if (q->n == n && !memcmp(s->member + q->first, s->found, n * sizeof *s->found))
            return 0;
    }
    if (room(&s->set, s->n_sets, 1, &s->sets_cap, sizeof *s->set, e) ||
        room(&s->member, s->n_members, n, &s->members_cap, sizeof *s->member, e))
        return e->code;
    memcpy(s->member + s->n_members, s->found, n * sizeof *s->found);
    s->set[s->n_sets] = (struct set){.first = (uint32_t)s->n_members, .n = (uint32_t)n, .may_end = !s->found[0]};
    s->n_members += n;
    *out = s->set_slot[at] = (uint32_t)s->n_sets++;
    return 0;
}

static size_t memory(const struct sets *s)
{
    return s->bytes + s->n_stacks * sizeof *s->stack + s->n_sets * sizeof *s->set + s->n_members * sizeof *s->member;
}

static int make_row(struct sets *s, uint32_t from, struct err *e)
{
    unsigned n = s->net.n_classes;
    uint32_t *row = malloc(n * sizeof *row);

    if (!row)
        return no_memory(e);
    for (unsigned i = 0; i < n; i++)
        row[i] = SET_NOT_KNOWN;
    s->set[from].next = row;
    s->bytes += n * sizeof *row;
    return 0;
}

static void begin_closure(struct sets *s)
{
    if (!++s->closure) { /* once in four billion */
        for (size_t i = 0; i < s->n_stacks; i++)
            s->stack[i].seen = 0;
        s->closure = 1;
    }
    s->n_found = 0;
}

static int make_step(struct sets *s, uint32_t from, unsigned class, uint32_t *to, struct err *e)
{
    unsigned byte = s->net.byte_of[class];
    size_t n = 0;

    if (memory(s) > BYTES_MAX)
        return err_set(e, -E2BIG, "the grammar needs more than %d MiB at this place of the answer", BYTES_MAX >> 20);
    if (!s->set[from].next && make_row(s, from, e))
        return e->code;
    begin_closure(s);
    for (uint32_t i = 0; i < s->set[from].n; i++) {
        uint32_t k = s->member[s->set[from].first + i];
        struct stack top = s->stack[k];
        const struct net_state *q = &s->net.state[top.state];

        for (uint32_t j = q->edge; k && j < q->edge + q->n_edges; j++) {
            const struct edge *x = &s->net.edge[j];
            if (x->kind == EDGE_BYTE && x->lo <= byte && byte <= x->hi && todo_put(s, &n, x->to, top.below, e))
                return e->code;
        }
        s->work += q->n_edges + 1;
    }
    if (close_over(s, n, e) || set_get(s, to, e))
        return e->code;
    s->set[from].next[class] = *to;
    return 0;
}

static inline int step(struct sets *s, uint32_t from, unsigned class, uint32_t *to, struct err *e)
{
    const uint32_t *row = s->set[from].next;

    if (row && row[class] != SET_NOT_KNOWN) {
        *to = row[class];
        return 0;
    }
    return make_step(s, from, class, to, e);
}

/* ---- plain text ---- */

/* Bytes of UTF-8 after some of a character, and what is then still to come; the rows of RFC 3629. */
enum { AT_CHAR, AT_1, AT_2, AT_3, AT_E0, AT_ED, AT_F0, AT_F4 };
static const struct {
    uint8_t at, lo, hi, then;
} utf8_row[] = {
    {AT_CHAR, 0x20, 0x21, AT_CHAR}, {AT_CHAR, 0x23, 0x5B, AT_CHAR}, {AT_CHAR, 0x5D, 0x7E, AT_CHAR},
    {AT_CHAR, 0xC2, 0xDF, AT_1},    {AT_CHAR, 0xE0, 0xE0, AT_E0},   {AT_CHAR, 0xE1, 0xEC, AT_2},
    {AT_CHAR, 0xED, 0xED, AT_ED},   {AT_CHAR, 0xEE, 0xEF, AT_2},    {AT_CHAR, 0xF0, 0xF0, AT_F0},
    {AT_CHAR, 0xF1, 0xF3, AT_3},    {AT_CHAR, 0xF4, 0xF4, AT_F4},   {AT_1, 0x80, 0xBF, AT_CHAR},
    {AT_2, 0x80, 0xBF, AT_1},       {AT_3, 0x80, 0xBF, AT_2},       {AT_E0, 0xA0, 0xBF, AT_1},
    {AT_ED, 0x80, 0x9F, AT_1},      {AT_F0, 0x90, 0xBF, AT_2},      {AT_F4, 0x80, 0x8F, AT_2},
};

static int plain_chars(struct sets *s, uint32_t from, unsigned chars, int *yes, struct err *e);

/* From within a character: all its ends, and `chars` plain ones behind it. Recursion: three bytes. */
static int plain_bytes(struct sets *s, uint32_t from, unsigned at, unsigned chars, int *yes, struct err *e)
{
    for (size_t i = 0; i < sizeof utf8_row / sizeof *utf8_row && *yes; i++) {
        if (utf8_row[i].at != at)
            continue;
        for (unsigned c = s->net.class_of[utf8_row[i].lo]; c <= s->net.class_of[utf8_row[i].hi] && *yes; c++) {
            unsigned then = utf8_row[i].then;
            uint32_t to = SET_DEAD;

            if (s->plain_steps && step(s, from, c, &to, e))
                return e->code;
            s->plain_steps -= s->plain_steps > 0;
            *yes = to != SET_DEAD;
            if (*yes && (then == AT_CHAR ? plain_chars(s, to, chars, yes, e) : plain_bytes(s, to, then, chars, yes, e)))
                return e->code;
        }
    }
    return 0;
}

/* May any `chars` plain characters come? Recursion: chars. */
static int plain_chars(struct sets *s, uint32_t from, unsigned chars, int *yes, struct err *e)
{
    if (s->set[from].not_plain && s->set[from].not_plain <= chars)
        *yes = 0;
    if (!*yes || s->set[from].plain >= chars)
        return 0;
    if (plain_bytes(s, from, AT_CHAR, chars - 1, yes, e))
        return e->code;
    if (*yes)
        s->set[from].plain = (uint8_t)chars;
    else if (s->plain_steps) /* else: not known */
        s->set[from].not_plain = (uint8_t)chars;
    return 0;
}

/* ---- tokens ---- */

static int walk_trie(struct sets *s, const struct trie *t, uint32_t from, uint64_t *bits, struct err *e)
{
    uint32_t *path = s->path, to;

    path[0] = from;
    for (size_t i = 0; i < t->n_nodes;) {
        const struct trie_node *x = &t->node[i];

        if (step(s, path[x->depth], s->net.class_of[x->byte], &to, e))
            return e->code;
        if (to == SET_DEAD) {
            i = x->after;
            continue;
        }
        for (uint32_t k = 0; k < x->n_tokens; k++) {
            uint32_t id = t->token[x->token + k];
            bits[id / 64] |= 1ull << id % 64;
        }
        path[x->depth + 1] = to;
        i++;
    }
    return 0;
}

int sets_allowed(struct sets *s, uint32_t from, const uint64_t **bits, struct err *e)
{
    size_t n = s->v->n_words;
    uint64_t *b;
    int plain = 1;

    *bits = s->set[from].allowed;
    if (*bits)
        return 0;
    s->work_end = s->work + WORK_MAX;
    s->plain_steps = PLAIN_STEPS_MAX;
    if (plain_chars(s, from, PLAIN_CHARS, &plain, e))
        return e->code;
    b = calloc(n + 1, sizeof *b);
    if (!b)
        return no_memory(e);
    if (plain)
        memcpy(b, s->v->plain, n * sizeof *b);
    if (walk_trie(s, plain ? &s->v->rest : &s->v->all, from, b, e)) {
        free(b);
        return e->code;
    }
    for (size_t i = 0; s->set[from].may_end && i < n; i++)
        b[i] |= s->v->ends[i];
    s->bytes += n * sizeof *b;
    *bits = s->set[from].allowed = b;
    return 0;
}

int sets_walk(struct sets *s, uint32_t from, const char *bytes, size_t n, uint32_t *to, struct err *e)
{
    s->work_end = s->work + WORK_MAX;
    for (size_t i = 0; i < n && from != SET_DEAD; i++)
        if (step(s, from, s->net.class_of[(unsigned char)bytes[i]], &from, e))
            return e->code;
    *to = from;
    return 0;
}

/* ---- beginning, end, and what is forgotten ---- */

static void forget_sets(struct sets *s)
{
    for (size_t i = 0; i < s->n_sets; i++) {
        free(s->set[i].next);
        free(s->set[i].allowed);
    }
    s->n_sets = s->n_members = s->bytes = 0;
}

static int make_start(struct sets *s, struct err *e)
{
    size_t n = 0;

    s->work_end = s->work + WORK_MAX;
    begin_closure(s);
    if (todo_put(s, &n, s->net.start[s->net.root], 0, e) || close_over(s, n, e))
        return e->code;
    return set_get(s, &s->start, e);
}

/* Number 0 of both: the empty stack, and the set of no stacks. */
static int begin(struct sets *s, struct err *e)
{
    if (room(&s->stack, 0, 1, &s->stacks_cap, sizeof *s->stack, e) || room(&s->set, 0, 1, &s->sets_cap, sizeof *s->set, e))
        return e->code;
    s->stack[0] = (struct stack){0};
    s->set[0] = (struct set){0};
    s->n_stacks = s->n_sets = 1;
    return 0;
}

int sets_init(struct sets *s, struct net *net, const struct grammar_vocab *v, struct err *e)
{
    *s = (struct sets){.net = *net, .v = v};
    *net = (struct net){0};
    s->path = malloc((v->longest + 2) * sizeof *s->path);
    if (!s->path)
        return no_memory(e);
    return begin(s, e) ? e->code : make_start(s, e);
}

void sets_free(struct sets *s)
{
    forget_sets(s);
    net_free(&s->net);
    free(s->stack);
    free(s->stack_slot);
    free(s->set_slot);
    free(s->set);
    free(s->member);
    free(s->todo);
    free(s->found);
    free(s->path);
}

int sets_full(const struct sets *s)
{
    return memory(s) > BYTES_WANTED;
}

/* A kept stack in the new table. Its frames from the outermost on, since each needs the number of the one below. */
static int keep_stack(struct sets *s, const struct stack *old, uint32_t k, uint32_t *out, struct err *e)
{
    uint32_t frame[GRAMMAR_DEPTH_MAX + 2], n = 0;

    for (; k; k = old[k].below)
        frame[n++] = old[k].state;
    *out = 0;
    while (n)
        if (stack_get(s, frame[--n], *out, out, e))
            return e->code;
    return 0;
}

int sets_trim(struct sets *s, uint32_t *const *keep, size_t n, struct err *e)
{
    struct sets was = *s;
    int rc;

    s->stack = NULL;
    s->set = NULL;
    s->member = NULL;
    s->stack_slot = s->set_slot = NULL;
    s->stacks_cap = s->stack_mask = s->sets_cap = s->set_mask = s->members_cap = 0;
    s->n_stacks = s->n_sets = s->n_members = s->bytes = 0;
    s->closure = 0;
    rc = begin(s, e) ? e->code : make_start(s, e);
    for (size_t i = 0; i < n && !rc; i++) {
        const struct set *q = &was.set[*keep[i]];

        s->n_found = 0;
        for (uint32_t j = 0; j < q->n && !rc; j++) {
            uint32_t k = 0;
            rc = keep_stack(s, was.stack, was.member[q->first + j], &k, e);
            if (!rc)
                rc = found_put(s, k, e);
        }
        if (rc || set_get(s, keep[i], e))
            rc = e->code;
    }
    for (size_t i = 0; i < n && rc; i++) /* numbers of what is gone */
        *keep[i] = SET_DEAD;
    forget_sets(&was);
    free(was.stack);
    free(was.set);
    free(was.member);
    free(was.stack_slot);
    free(was.set_slot);
    return rc;
}
