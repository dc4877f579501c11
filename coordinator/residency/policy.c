/* The books of a cache of experts. Residents lie in lists by size class of their place and heat
 * class, in order of use; within a list the last one has the least value but for a tie, so a
 * decision looks at the ends of a few lists and never through the residents. */
#include "coordinator/residency/policy.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/residency/heap.h"
#include "coordinator/residency/heat.h"
#include "coordinator/residency/reuse.h"

#define NOWHERE 255
#define CENSUS                                                                                     \
    32.0 /* tokens for a round over all experts, after which the values are made anew              \
          */
#define TEACHES                                                                                    \
    8          /* a pass of more tokens is a prompt: when in it an expert was used is not known */
#define TIES 4 /* residents of the same value that are looked at */
#define ALLOWANCE 32.0 /* tokens whose moves can be saved up */
#define LFU_HALF 64.0

struct pair {
    struct heat heat;
    uint64_t last;       /* the token of its last use: an estimate in a pass of several */
    uint32_t next, prev; /* resident: to older, to newer */
    uint8_t class;       /* at its last use */
    uint8_t place;       /* size class of its place, or NOWHERE */
    uint8_t used;        /* in this run; a wait that began before it teaches nothing */
    uint8_t warm;        /* used, or known from an earlier run */
};

struct policy {
    struct policy_config c;
    uint32_t n_pairs, n_lists;
    uint64_t now, turn; /* first token of this pass; of the next */
    uint32_t pass;
    uint64_t *clock; /* by layer: the last token that had its turn there */
    uint8_t *size_of;
    uint32_t residents[POLICY_SIZES];
    struct pair *pair; /* n_pairs, then n_lists heads: next is the newest, prev the oldest */
    struct reuse reuse;
    uint32_t census; /* pairs counted in this round */
    uint64_t taught; /* tokens of this round from which something is learned */
    double allowance;
    double life_before; /* tokens behind the imported heat */
    struct heap lfu[POLICY_SIZES];
    double *lfu_count; /* by pair: log2 of the uses, in units that grow with time */
    uint32_t *aside;   /* lfu: those that may not leave */
};

static uint32_t pair_of(const struct policy *p, uint32_t layer, uint32_t expert)
{
    assert(layer < p->c.n_layers && expert < p->c.n_experts);
    return layer * p->c.n_experts + expert;
}

int policy_open(const struct policy_config *c, struct policy **out, struct err *e)
{
    struct policy *p = calloc(1, sizeof *p);
    uint64_t n = (uint64_t)c->n_layers * c->n_experts;
    int rc = 0;

    assert(c->n_sizes >= 1 && c->n_sizes <= POLICY_SIZES);
    if (!p)
        return err_set(e, -ENOMEM, "no memory for the cache's books");
    p->c = *c;
    p->c.size_of = NULL;
    p->n_lists = c->n_sizes * REUSE_CLASSES;
    if (n + p->n_lists >= POLICY_NOBODY) {
        rc = err_set(e, -EOVERFLOW, "%u layers of %u experts are too many", c->n_layers,
                     c->n_experts);
        goto failed;
    }
    p->n_pairs = (uint32_t)n;
    p->pair = calloc((size_t)p->n_pairs + p->n_lists, sizeof *p->pair);
    p->clock = calloc(c->n_layers + 1, sizeof *p->clock);
    p->size_of = calloc(c->n_layers + 1, 1);
    p->aside = calloc((size_t)p->n_pairs + 1, sizeof *p->aside);
    p->lfu_count = calloc((size_t)p->n_pairs + 1, sizeof *p->lfu_count);
    if (!p->pair || !p->clock || !p->size_of || !p->aside || !p->lfu_count) {
        rc = err_set(e, -ENOMEM, "no memory for the books of %u experts", p->n_pairs);
        goto failed;
    }
    for (uint32_t s = 0; c->kind == POLICY_LFU && s < c->n_sizes && !rc; s++)
        rc = heap_open(&p->lfu[s], p->n_pairs, e);
    if (rc)
        goto failed;
    for (uint32_t l = 0; c->size_of && l < c->n_layers; l++) {
        assert(c->size_of[l] < c->n_sizes);
        p->size_of[l] = c->size_of[l];
    }
    for (uint32_t i = 0; i < p->n_pairs; i++)
        p->pair[i].place = NOWHERE;
    for (uint32_t i = p->n_pairs; i < p->n_pairs + p->n_lists; i++)
        p->pair[i].next = p->pair[i].prev = i;
    reuse_init(&p->reuse);
    p->now = p->pass = 1; /* "last = 0" is before every token */
    p->turn = 2;
    *out = p;
    return 0;
failed:
    policy_close(p);
    return rc;
}

void policy_close(struct policy *p)
{
    if (!p)
        return;
    for (uint32_t s = 0; s < POLICY_SIZES; s++)
        heap_close(&p->lfu[s]);
    free(p->pair);
    free(p->clock);
    free(p->size_of);
    free(p->aside);
    free(p->lfu_count);
    free(p);
}

/* --- lists ---------------------------------------------------------------------------------------
 */

static uint32_t head_of(const struct policy *p, uint32_t size, uint32_t class)
{
    return p->n_pairs + size * REUSE_CLASSES + (p->c.kind == POLICY_HEAT ? class : 0);
}

static void unlink_pair(struct policy *p, uint32_t i)
{
    struct pair *x = &p->pair[i];

    p->pair[x->prev].next = x->next;
    p->pair[x->next].prev = x->prev;
}

static void link_newest(struct policy *p, uint32_t i)
{
    struct pair *x = &p->pair[i];
    uint32_t head = head_of(p, x->place, x->class);

    x->prev = head;
    x->next = p->pair[head].next;
    p->pair[x->next].prev = i;
    p->pair[head].next = i;
}

/* --- time and uses -------------------------------------------------------------------------------
 */

/* Turns of its layer since the expert's last use. */
static uint64_t age_of(const struct policy *p, uint32_t i)
{
    uint64_t clock = p->clock[i / p->c.n_experts];

    return clock > p->pair[i].last ? clock - p->pair[i].last : 0;
}

/* A part of the census as large as the part of CENSUS that has passed. */
static void count_waits(struct policy *p, uint32_t tokens)
{
    double part = ceil(p->n_pairs * (tokens / CENSUS));
    uint32_t n = part < p->n_pairs ? (uint32_t)part : p->n_pairs;

    for (; n && p->census < p->n_pairs; n--, p->census++)
        if (p->pair[p->census].used)
            reuse_waits(&p->reuse, p->pair[p->census].class, age_of(p, p->census));
    if (p->census == p->n_pairs) {
        reuse_learn(&p->reuse, (double)p->taught);
        p->taught = 0;
        p->census = 0;
    }
}

void policy_step(struct policy *p, uint32_t n_tokens)
{
    p->now = p->turn;
    p->pass = n_tokens ? n_tokens : 1;
    p->turn = p->now + p->pass;
    p->allowance = fmin(p->allowance + p->c.moves * p->pass, fmax(p->c.moves * ALLOWANCE, 1));
    if (p->c.kind != POLICY_HEAT)
        return;
    if (p->pass <= TEACHES)
        p->taught += p->pass;
    count_waits(p, p->pass);
}

static void use_heat(struct policy *p, uint32_t i, uint32_t n)
{
    struct pair *x = &p->pair[i];

    if (p->c.kind == POLICY_HEAT && x->used && p->pass <= TEACHES && p->now > x->last)
        reuse_used(&p->reuse, x->class, p->now - x->last - 1);
    heat_use(&x->heat, p->now, n, p->pass);
    x->class = (uint8_t)heat_class(heat_value(&x->heat));
}

static void use_lfu(struct policy *p, uint32_t i, uint32_t n)
{
    double unit = (double)p->now / LFU_HALF, *count = &p->lfu_count[i];

    *count = p->pair[i].used ? log2(exp2(*count - unit) + n) + unit : log2(n) + unit;
    if (p->pair[i].place != NOWHERE)
        heap_put(&p->lfu[p->pair[i].place], i, *count);
}

void policy_use(struct policy *p, uint32_t layer, uint32_t expert, uint32_t n)
{
    uint32_t i = pair_of(p, layer, expert);
    struct pair *x = &p->pair[i];
    int here = x->place != NOWHERE;

    if (!n)
        return;
    if (here)
        unlink_pair(p, i);
    if (p->c.kind == POLICY_LFU)
        use_lfu(p, i, n);
    use_heat(p, i, n);
    x->used = x->warm = 1;
    x->last = p->turn - 1 - p->pass / (n + 1);
    p->clock[layer] = p->turn - 1;
    if (here)
        link_newest(p, i);
}

/* --- who leaves ----------------------------------------------------------------------------------
 */

struct asked {
    policy_may_leave *may_leave;
    void *arg;
};
struct coldest {
    uint32_t pair; /* or POLICY_NOBODY */
    double value;
};

static int may_leave(const struct policy *p, const struct asked *a, uint32_t i)
{
    return !a->may_leave || a->may_leave(a->arg, i / p->c.n_experts, i % p->c.n_experts);
}

static double value_of(const struct policy *p, uint32_t i)
{
    return p->pair[i].warm ? reuse_value(&p->reuse, p->pair[i].class, age_of(p, i)) : 0;
}

/* Of those that had their last use as many turns ago, later ones in the list have had their turn
 * since: they have the longest wait before them. */
static uint32_t latest_tie(const struct policy *p, const struct asked *a, uint32_t i)
{
    uint32_t best = i, at = i;

    for (int k = 0; k < TIES; k++) {
        at = p->pair[at].prev;
        if (at >= p->n_pairs || age_of(p, at) != age_of(p, i))
            break;
        if (may_leave(p, a, at))
            best = at;
    }
    return best;
}

static struct coldest coldest_heat(const struct policy *p, uint32_t size, const struct asked *a)
{
    uint32_t at[REUSE_CLASSES];
    double value[REUSE_CLASSES];

    for (uint32_t c = 0; c < REUSE_CLASSES; c++) {
        at[c] = p->pair[head_of(p, size, c)].prev;
        value[c] = at[c] < p->n_pairs ? value_of(p, at[c]) : INFINITY;
    }
    for (;;) {
        uint32_t best = 0;
        for (uint32_t c = 1; c < REUSE_CLASSES; c++)
            if (value[c] < value[best])
                best = c;
        if (value[best] > 1)
            return (struct coldest){POLICY_NOBODY, INFINITY};
        if (may_leave(p, a, at[best]))
            return (struct coldest){latest_tie(p, a, at[best]), value[best]};
        at[best] = p->pair[at[best]].prev;
        value[best] = at[best] < p->n_pairs ? value_of(p, at[best]) : INFINITY;
    }
}

static struct coldest coldest_lru(const struct policy *p, uint32_t size, const struct asked *a)
{
    uint32_t i = p->pair[head_of(p, size, 0)].prev;

    while (i < p->n_pairs && !may_leave(p, a, i))
        i = p->pair[i].prev;
    return i < p->n_pairs ? (struct coldest){i, 0} : (struct coldest){POLICY_NOBODY, INFINITY};
}

static struct coldest coldest_lfu(struct policy *p, uint32_t size, const struct asked *a)
{
    struct heap *h = &p->lfu[size];
    struct coldest found = {POLICY_NOBODY, INFINITY};
    uint32_t n = 0;

    while (h->n && !may_leave(p, a, h->item[0])) {
        p->aside[n++] = h->item[0];
        heap_take(h, h->item[0]);
    }
    if (h->n)
        found = (struct coldest){h->item[0], 0};
    while (n--)
        heap_put(h, p->aside[n], h->key[p->aside[n]]);
    return found;
}

static struct coldest coldest_in(struct policy *p, uint32_t size, const struct asked *a)
{
    if (!p->residents[size])
        return (struct coldest){POLICY_NOBODY, INFINITY};
    switch (p->c.kind) {
    case POLICY_HEAT:
        return coldest_heat(p, size, a);
    case POLICY_LRU:
        return coldest_lru(p, size, a);
    case POLICY_LFU:
        return coldest_lfu(p, size, a);
    }
    return (struct coldest){POLICY_NOBODY, INFINITY};
}

struct policy_answer policy_admit(struct policy *p, uint32_t layer, uint32_t expert, int must,
                                  policy_may_leave *cb, void *arg)
{
    uint32_t i = pair_of(p, layer, expert), own = p->size_of[layer];
    const struct asked a = {cb, arg};
    struct policy_answer out = {.verdict = POLICY_WAITS, .place = own};
    struct coldest found = {POLICY_NOBODY, INFINITY};
    int choosy = p->c.kind == POLICY_HEAT && !must;

    assert(p->pair[i].place == NOWHERE);
    for (uint32_t s = own; s < p->c.n_sizes; s++)
        if (p->residents[s] < p->c.places[s])
            return (struct policy_answer){.verdict = POLICY_FREE, .place = s};
    /* a larger place is taken only where it is worth clearly less: it would be partly empty */
    for (uint32_t s = own; s < p->c.n_sizes; s++) {
        struct coldest c = coldest_in(p, s, &a);
        if (c.pair != POLICY_NOBODY &&
            (found.pair == POLICY_NOBODY || c.value + POLICY_MARGIN < found.value)) {
            found = c;
            out.place = s;
        }
    }
    if (found.pair == POLICY_NOBODY)
        return out;
    out.verdict = POLICY_STAYS;
    if (choosy && value_of(p, i) <= found.value + p->c.margin)
        return out;
    if (choosy && p->c.moves > 0) {
        if (p->allowance < 1)
            return out;
        p->allowance--;
    }
    out.verdict = POLICY_REPLACE;
    out.layer = found.pair / p->c.n_experts;
    out.expert = found.pair % p->c.n_experts;
    return out;
}

/* --- who is there --------------------------------------------------------------------------------
 */

void policy_enter(struct policy *p, uint32_t layer, uint32_t expert, uint32_t place)
{
    uint32_t i = pair_of(p, layer, expert);

    assert(place < p->c.n_sizes && p->pair[i].place == NOWHERE);
    assert(p->residents[place] < p->c.places[place]);
    p->residents[place]++;
    p->pair[i].place = (uint8_t)place;
    link_newest(p, i);
    if (p->c.kind == POLICY_LFU)
        heap_put(&p->lfu[place], i, p->pair[i].used ? p->lfu_count[i] : -INFINITY);
}

void policy_leave(struct policy *p, uint32_t layer, uint32_t expert)
{
    uint32_t i = pair_of(p, layer, expert);
    struct pair *x = &p->pair[i];

    assert(x->place != NOWHERE);
    unlink_pair(p, i);
    if (p->c.kind == POLICY_LFU)
        heap_take(&p->lfu[x->place], i);
    p->residents[x->place]--;
    x->place = NOWHERE;
}

int policy_resident(const struct policy *p, uint32_t layer, uint32_t expert)
{
    return p->pair[pair_of(p, layer, expert)].place != NOWHERE;
}

uint32_t policy_residents(const struct policy *p, uint32_t place)
{
    return p->residents[place];
}

uint64_t policy_last_use(const struct policy *p, uint32_t layer, uint32_t expert)
{
    const struct pair *x = &p->pair[pair_of(p, layer, expert)];

    return x->used ? x->last : 0;
}

double policy_value(const struct policy *p, uint32_t layer, uint32_t expert)
{
    return value_of(p, pair_of(p, layer, expert));
}

/* --- beyond one run ------------------------------------------------------------------------------
 */

double policy_uses(const struct policy *p, uint32_t layer, uint32_t expert)
{
    const struct heat *h = &p->pair[pair_of(p, layer, expert)].heat;

    return h->slow > 0 ? (double)h->slow * (double)heat_decay(HEAT_SLOW, p->now > h->at ? p->now - h->at : 0) : 0;
}

uint64_t policy_tokens(const struct policy *p)
{
    return p->now > 2 ? p->now - 2 : 0; /* the first pass begins at 2 */
}

static float life_now(const struct policy *p, uint32_t i)
{
    const struct heat *h = &p->pair[i].heat;
    uint64_t last = p->turn - 1;

    return h->life * heat_decay(HEAT_LIFE, last > h->at ? last - h->at : 0);
}

/* Of the tokens of this run and what was known before. */
static double life_tokens(const struct policy *p)
{
    double old = exp2(-(double)(p->turn - 1) / HEAT_LIFE);

    return p->life_before * old + heat_full(HEAT_LIFE) * (1 - old);
}

void policy_export(const struct policy *p, float *uses, double *tokens)
{
    for (uint32_t i = 0; i < p->n_pairs; i++)
        uses[i] = life_now(p, i);
    *tokens = life_tokens(p);
}

void policy_import(struct policy *p, const float *uses, double tokens)
{
    p->life_before = isfinite(tokens) && tokens > 1 ? tokens : 1;
    for (uint32_t i = 0; i < p->n_pairs; i++) {
        struct pair *x = &p->pair[i];
        double rate;
        if (!isfinite(uses[i]) || uses[i] <= 0 || x->used || x->place != NOWHERE)
            continue;
        rate = fmin(uses[i] / p->life_before, 1);
        x->heat.life = uses[i];
        x->heat.slow = (float)(rate * heat_full(HEAT_SLOW));
        x->heat.fast = (float)(rate * heat_full(HEAT_FAST));
        x->heat.at = x->last = p->turn - 1;
        x->class = (uint8_t)heat_class(heat_value(&x->heat));
        x->warm = 1;
    }
}

struct hot {
    float life;
    uint32_t pair;
};

static int hotter(const void *va, const void *vb)
{
    const struct hot *a = va, *b = vb;

    if (a->life != b->life)
        return a->life < b->life ? 1 : -1;
    return a->pair < b->pair ? -1 : a->pair > b->pair;
}

size_t policy_hottest(const struct policy *p, uint32_t *pairs)
{
    struct hot *h = malloc(((size_t)p->n_pairs + 1) * sizeof *h);
    size_t n = 0;

    if (!h)
        return 0; /* a cold start works too */
    for (uint32_t i = 0; i < p->n_pairs; i++)
        if (life_now(p, i) > 0)
            h[n++] = (struct hot){life_now(p, i), i};
    qsort(h, n, sizeof *h, hotter);
    for (size_t i = 0; i < n; i++)
        pairs[i] = h[i].pair;
    free(h);
    return n;
}
