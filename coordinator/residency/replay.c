/* Replays. The rules to compare with are written as plainly as they can be said: they look through
 * all residents where the engine's policies must not. */
#include "coordinator/residency/replay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/residency/heap.h"

void replay_part(const struct trace *t, struct policy *p, uint32_t from, uint32_t to,
                 struct replay *r)
{
    size_t token = (size_t)t->n_layers * t->top_k;

    for (size_t i = from * token; i < to * token; i++) {
        uint32_t layer = t->pair[i] / t->n_experts, expert = t->pair[i] % t->n_experts;
        struct policy_answer a;
        if (i % token == 0)
            policy_step(p, 1);
        policy_use(p, layer, expert, 1);
        if (policy_resident(p, layer, expert)) {
            r->hits++;
            continue;
        }
        a = policy_admit(p, layer, expert, 0, NULL, NULL);
        if (a.verdict == POLICY_REPLACE)
            policy_leave(p, a.layer, a.expert);
        if (a.verdict == POLICY_REPLACE || a.verdict == POLICY_FREE) {
            policy_enter(p, layer, expert, a.place);
            r->moves++;
        }
    }
}

int replay_policy(const struct trace *t, uint32_t places, enum policy_kind kind, struct replay *r,
                  struct err *e)
{
    struct policy_config c = {.kind = kind,
                              .n_layers = t->n_layers,
                              .n_experts = t->n_experts,
                              .n_sizes = 1,
                              .places = {places},
                              .margin = POLICY_MARGIN};
    struct policy *p = NULL;
    int rc = policy_open(&c, &p, e);

    *r = (struct replay){0};
    if (rc)
        return rc;
    replay_part(t, p, 0, t->n_tokens, r);
    policy_close(p);
    return 0;
}

/* --- rules to compare with: a cache and one or two numbers an expert -----------------------------
 */

struct plain {
    uint32_t n, places;
    uint32_t *who; /* residents */
    uint32_t *at;  /* by pair: place or UINT32_MAX */
    double *heat;
    uint32_t *last, *count;
};

static int plain_open(struct plain *c, const struct trace *t, uint32_t places, struct err *e)
{
    size_t n = trace_pairs(t);

    *c = (struct plain){.places = places};
    c->who = calloc((size_t)places + 1, sizeof *c->who);
    c->at = malloc((n + 1) * sizeof *c->at);
    c->heat = calloc(n + 1, sizeof *c->heat);
    c->last = calloc(n + 1, sizeof *c->last);
    c->count = calloc(n + 1, sizeof *c->count);
    if (!c->who || !c->at || !c->heat || !c->last || !c->count)
        return err_set(e, -ENOMEM, "no memory to replay %zu experts", n);
    memset(c->at, 0xff, (n + 1) * sizeof *c->at);
    return 0;
}

static void plain_close(struct plain *c)
{
    free(c->who);
    free(c->at);
    free(c->heat);
    free(c->last);
    free(c->count);
}

/* A free place, or that of `out`. */
static void plain_admit(struct plain *c, uint32_t x, uint32_t out, struct replay *r)
{
    uint32_t place = c->n < c->places ? c->n++ : c->at[out];

    if (c->n == c->places && c->who[place] != x && c->at[c->who[place]] == place)
        c->at[c->who[place]] = UINT32_MAX;
    c->who[place] = x;
    c->at[x] = place;
    r->moves++;
}

/* a is colder than b, by count, then heat, then recency */
static int colder(const struct plain *c, uint32_t a, uint32_t b)
{
    if (c->count[a] != c->count[b])
        return c->count[a] < c->count[b];
    if (c->heat[a] != c->heat[b])
        return c->heat[a] < c->heat[b];
    return c->last[a] < c->last[b];
}

static uint32_t plain_coldest(const struct plain *c)
{
    uint32_t best = c->who[0];

    for (uint32_t i = 1; i < c->n; i++)
        if (colder(c, c->who[i], best))
            best = c->who[i];
    return best;
}

int replay_window(const struct trace *t, uint32_t places, struct replay *r, struct err *e)
{
    enum { WINDOW = 64 };
    size_t token = (size_t)t->n_layers * t->top_k, n = trace_accesses(t);
    double keep = exp2(-1.0 / 4096);
    struct plain c;
    int rc = plain_open(&c, t, places, e);

    *r = (struct replay){0};
    for (size_t i = 0; !rc && i < n; i++) {
        uint32_t x = t->pair[i], cold;
        if (i % token ==
            0) { /* heat: lifetime uses, decayed; their order is that of uses a token */
            for (uint32_t k = 0; k < trace_pairs(t); k++)
                c.heat[k] *= keep;
            for (size_t k = 0; i >= WINDOW * token && k < token; k++)
                c.count[t->pair[i - WINDOW * token + k]]--;
        }
        c.heat[x]++;
        c.count[x]++;
        c.last[x] = (uint32_t)i;
        if (c.at[x] != UINT32_MAX) {
            r->hits++;
            continue;
        }
        if (c.n < places) {
            plain_admit(&c, x, x, r);
            continue;
        }
        if (c.count[x] < 2)
            continue;
        cold = plain_coldest(&c);
        if (c.count[x] > c.count[cold] || (c.count[x] == c.count[cold] && c.heat[x] > c.heat[cold]))
            plain_admit(&c, x, cold, r);
    }
    plain_close(&c);
    return rc;
}

int replay_decay(const struct trace *t, uint32_t places, double half_life, double margin,
                 struct replay *r, struct err *e)
{
    size_t token = (size_t)t->n_layers * t->top_k, n = trace_accesses(t);
    double keep = exp2(-1 / half_life);
    struct plain c;
    int rc = plain_open(&c, t, places, e);

    *r = (struct replay){0};
    for (size_t i = 0; !rc && i < n; i++) {
        uint32_t x = t->pair[i], cold;
        for (uint32_t k = 0; i % token == 0 && k < trace_pairs(t); k++)
            c.heat[k] *= keep;
        c.heat[x]++;
        if (c.at[x] != UINT32_MAX) {
            r->hits++;
            continue;
        }
        cold = c.n < places ? x : plain_coldest(&c);
        if (c.n < places || c.heat[x] > c.heat[cold] + margin)
            plain_admit(&c, x, cold, r);
    }
    plain_close(&c);
    return rc;
}

/* --- with the whole trace in hand ----------------------------------------------------------------
 */

static int downwards(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? 1 : x > y ? -1 : 0;
}

int replay_fixed(const struct trace *t, uint32_t places, struct replay *r, struct err *e)
{
    uint32_t n = trace_pairs(t), *count = calloc((size_t)n + 1, sizeof *count);

    *r = (struct replay){0};
    if (!count)
        return err_set(e, -ENOMEM, "no memory to replay %u experts", n);
    for (size_t i = 0; i < trace_accesses(t); i++)
        count[t->pair[i]]++;
    qsort(count, n, sizeof *count, downwards);
    for (uint32_t i = 0; i < n && i < places; i++)
        r->hits += count[i];
    free(count);
    return 0;
}

/* next[i]: the access after i of the same pair, or their number. */
static int next_uses(const struct trace *t, uint32_t **out, struct err *e)
{
    size_t n = trace_accesses(t);
    uint32_t *next = malloc(n * sizeof *next);
    uint32_t *soonest = malloc(((size_t)trace_pairs(t) + 1) * sizeof *soonest);

    if (!next || !soonest) {
        free(next);
        free(soonest);
        return err_set(e, -ENOMEM, "no memory to replay %zu uses", n);
    }
    for (uint32_t x = 0; x < trace_pairs(t); x++)
        soonest[x] = (uint32_t)n;
    for (size_t i = n; i-- > 0;) {
        next[i] = soonest[t->pair[i]];
        soonest[t->pair[i]] = (uint32_t)i;
    }
    free(soonest);
    *out = next;
    return 0;
}

int replay_optimum(const struct trace *t, uint32_t places, struct replay *r, struct err *e)
{
    size_t n = trace_accesses(t);
    uint32_t *next = NULL;
    struct heap h = {0}; /* residents, the one whose next use is the last first */
    int rc = next_uses(t, &next, e);

    *r = (struct replay){0};
    if (!rc)
        rc = heap_open(&h, trace_pairs(t), e);
    for (size_t i = 0; !rc && i < n; i++) {
        uint32_t x = t->pair[i];
        int here = h.at[x] != HEAP_ABSENT;
        r->hits += here;
        if (!here && next[i] == n)
            continue; /* never again */
        if (!here && h.n == places) {
            if (h.key[h.item[0]] >= -(double)next[i])
                continue; /* everybody here is needed sooner */
            heap_take(&h, h.item[0]);
        }
        r->moves += !here;
        heap_put(&h, x, -(double)next[i]);
    }
    heap_close(&h);
    free(next);
    return rc;
}
