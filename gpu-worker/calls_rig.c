/* Nothing here is of the product but what the threads run: the workers' own loop and the steward's. */
#define _GNU_SOURCE
#include "gpu-worker/calls_rig.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cpu-worker/worker.h"
#include "kernels/type/type.h"
#include "shm/steward.h"

enum { MOST_WORKERS = MAX_NODES + 1 + RIG_CARDS, MOST_NEEDS = 64 };

struct rig_worker {
    struct rig_more *rig;
    struct child child;
    struct maps m;
    struct worker w;
    struct err e;
    uint32_t number;
    int card; /* -1: a node's */
    _Atomic int quit;
    int rc;
    pthread_t thread;
};
struct rig_more {
    struct calls_rig_config c;
    struct calls_rig *r;
    struct child child; /* segments that all have */
    struct rig_worker worker[MOST_WORKERS];
    uint32_t n_workers, n_cpu;
    struct steward *steward;
    uint8_t *slabs[MAX_NODES], *pools; /* both cards', one after the other */
    uint64_t slab_bytes;
    uint32_t n_used[RIG_CARDS];
    uint64_t epoch, seed;
    _Atomic uint64_t late_ns;
    _Atomic int quit, halted;
    pthread_t thread;
};

static uint32_t random_of(struct rig_more *m)
{
    m->seed = m->seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(m->seed >> 33);
}
static int chance(struct rig_more *m, uint32_t parts)
{
    return random_of(m) % 100 < parts;
}

static void *memory(struct calls_rig *r, uint64_t bytes)
{
    void *p;

    bytes = (bytes + 4095) & ~4095ull;
    p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (p == MAP_FAILED)
        abort();
    r->seg[r->n_segs++] = (struct calls_rig_seg){p, bytes};
    return p;
}
static void *segment(struct calls_rig *r, enum seg_role role, uint32_t index, uint64_t bytes)
{
    struct child *c = &r->more->child;
    void *p = memory(r, bytes);

    c->seg[c->n_segs++] = (struct seg){.fd = -1, .role = role, .index = index, .bytes = bytes, .base = p};
    return p;
}

/* ---- segments ---- */

static void make_geometry(struct calls_rig *r, const struct calls_rig_config *c)
{
    struct geometry *g = &r->g;
    uint32_t top_k = 0;

    for (uint32_t i = 0; i < c->n_layers; i++)
        top_k = c->layer[i].top_k > top_k ? c->layer[i].top_k : top_k;
    *g = (struct geometry){.n_nodes = c->n_nodes,
                           .n_layers = c->n_layers,
                           .n_experts = c->n_experts,
                           .top_k = top_k,
                           .n_embd = c->n_embd,
                           .n_ff = c->n_ff,
                           .max_tokens = c->max_tokens,
                           .max_pairs = c->max_tokens * top_k,
                           .step_tokens = c->step_tokens,
                           .step_out = c->step_tokens,
                           .order_slots = 8,
                           .n_slabs = c->n_layers * c->n_experts,
                           .n_slots = RIG_CARDS * c->n_slots,
                           .amend_slots = 64};
    g->max_items = g->max_pairs < c->n_experts ? g->max_pairs : c->n_experts;
    while (g->amend_slots <= CALLS_IN_FLIGHT * g->max_items * g->n_nodes)
        g->amend_slots *= 2;
    g->acts_half = ((uint64_t)g->max_tokens * g->n_embd * 4 + 4095) & ~4095ull;
    g->inter_half = ((uint64_t)g->max_pairs * g->n_ff * 4 + 4095) & ~4095ull;
    g->rows_half = ((uint64_t)g->max_pairs * g->n_embd * 4 + 4095) & ~4095ull;
}

static void make_tables(struct calls_rig *r)
{
    const struct geometry *g = &r->g;
    uint64_t at = (sizeof(struct tables) + 63) & ~63ull, experts = (uint64_t)g->n_layers * g->n_experts;
    struct tables t;

    t.off_entry = at, at += experts * 8;
    t.off_header = at, at += (uint64_t)g->n_nodes * g->n_slabs * 8;
    t.off_slab = at, at += (uint64_t)g->n_nodes * g->n_slabs * 8;
    t.off_layer = at, at += g->n_layers * sizeof(struct expert_layer);
    t.off_scale = at, at += experts * N_MATS * 4;
    at = (at + 63) & ~63ull;
    t.off_slot = at, at += g->n_slots * sizeof(struct card_slot);
    t.off_card = at, at += MAX_CARDS * 4;
    r->tables = segment(r, SEG_TABLES, 0, at);
    *r->tables = t;
}

/* As if packed: a node's rows of the three matrices side by side. */
static void fill_layer(struct calls_rig *r, uint32_t i)
{
    const struct calls_rig_config *c = &r->more->c;
    struct expert_layer *l = table_layer(r->tables, i);
    const struct calls_rig_layer *x = &c->layer[i];

    *l = (struct expert_layer){.n_experts = c->n_experts, .top_k = x->top_k, .packed = 1};
    for (int m = 0; m < N_MATS; m++) {
        struct expert_matrix *to = &l->m[m];
        to->type = x->type[m];
        to->rows = m == MAT_DOWN ? c->n_embd : c->n_ff;
        to->cols = m == MAT_DOWN ? c->n_ff : c->n_embd;
        if (type_row_bytes(to->type, to->cols, &to->row_bytes))
            abort();
        for (uint32_t e = 0; e < c->n_experts; e++)
            table_scale(r->tables, &r->g, i, e)[m] = x->scale[m] ? x->scale[m][e] : 1.0f;
        l->has_scale |= x->scale[m] != NULL;
    }
}

static const uint8_t *matrix(const struct rig_more *m, uint32_t layer, uint32_t expert, int mat)
{
    return m->c.layer[layer].rows[mat] + expert * m->c.layer[layer].bytes[mat];
}

/* Every expert has a slab of its own, for good. */
static void fill_slabs(struct calls_rig *r)
{
    struct rig_more *m = r->more;
    const struct geometry *g = &r->g;

    for (uint32_t i = 0; i < g->n_layers; i++)
        for (uint32_t k = 0; k < g->n_nodes; k++)
            if (slab_bytes(table_layer(r->tables, i), k, g->n_nodes) > m->slab_bytes)
                m->slab_bytes = slab_bytes(table_layer(r->tables, i), k, g->n_nodes);
    for (uint32_t k = 0; k < g->n_nodes; k++) {
        m->slabs[k] = segment(r, SEG_SLABS, k, g->n_slabs * m->slab_bytes);
        for (uint32_t s = 0; s < g->n_slabs; s++) {
            const struct expert_layer *l = table_layer(r->tables, s / g->n_experts);
            *table_slab_off(r->tables, g, k, s) = s * m->slab_bytes;
            atomic_store(table_header(r->tables, g, k, s), s + 1);
            for (int mat = 0; mat < N_MATS; mat++)
                memcpy(m->slabs[k] + s * m->slab_bytes + packed_off(l, k, g->n_nodes, mat),
                       matrix(m, s / g->n_experts, s % g->n_experts, mat) +
                           share_row(l->m[mat].rows, k, g->n_nodes) * l->m[mat].row_bytes,
                       share_bytes(&l->m[mat], k, g->n_nodes));
        }
    }
    m->epoch = g->n_slabs + 1;
}

static void make_pools(struct calls_rig *r)
{
    struct rig_more *m = r->more;
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < r->g.n_layers; i++)
        bytes = slot_bytes(table_layer(r->tables, i)) > bytes ? slot_bytes(table_layer(r->tables, i)) : bytes;
    r->pool_bytes = bytes * m->c.n_slots;
    m->pools = r->pool = memory(r, RIG_CARDS * r->pool_bytes + 4096);
    for (uint32_t i = 0; i < r->g.n_slots; i++)
        *table_slot(r->tables, i) = (struct card_slot){
            .off = i % m->c.n_slots * bytes, .bytes = bytes, .card = i / m->c.n_slots};
}

/* ---- threads ---- */

static void *work(void *arg)
{
    struct rig_worker *w = arg;

    w->rc = team_run(1, NULL, 1, worker_lead, &w->w);
    if (w->rc)
        printf("worker %u: %s\n", w->number, w->e.msg);
    return NULL;
}

static int start_worker(struct rig_more *m, uint32_t number, int card, struct err *e)
{
    struct rig_worker *w = &m->worker[m->n_workers++];
    int rc;

    w->rig = m;
    w->number = number;
    w->card = card;
    w->child = m->child;
    w->child.outbox = number;
    w->child.ctl = -1;
    if ((rc = maps_take(&w->m, &w->child, e)))
        return rc;
    if (card >= 0) {
        w->m.pool = m->pools + (uint32_t)card * m->r->pool_bytes;
        w->m.slot0 = (uint32_t)card * m->c.n_slots;
        w->m.n_slots = m->c.n_slots;
    }
    if ((rc = worker_init(&w->w, &w->m, NULL, 1, 0, 0, e)))
        return rc;
    w->w.quit = &w->quit;
    w->w.e = &w->e;
    rc = -pthread_create(&w->thread, NULL, work, w);
    return rc ? err_set(e, rc, "no thread") : 0;
}

/* The nodes' workers, or for one share of a late owner the spare one. */
static void serve(struct rig_more *m, const struct need *n, uint64_t now)
{
    const struct geometry *g = &m->r->g;
    uint32_t slab = n->layer * g->n_experts + n->expert, owner[MAX_NODES];

    for (uint32_t k = 0; k < g->n_nodes; k++)
        owner[k] = PROC_FIRST_WORKER + (random_of(m) % 4 ? k : g->n_nodes);
    switch (n->why) {
    case NEED_PLACE:
        steward_grant(m->steward, n->call, n->item, slab, slab + 1, owner, now);
        break;
    case NEED_AGAIN:
        if (atomic_load(place_header(m->r->tables, g, n->share, n->was.place)) == n->was.epoch)
            steward_give(m->steward, n->call, n->item, n->share, n->was.outbox, n->was.place, n->was.epoch, now);
        break;
    case NEED_LATE:
        if (n->was.place < g->n_slabs) /* a card's share cannot go to a node without its sisters */
            steward_give(m->steward, n->call, n->item, n->share,
                         n->was.outbox == PROC_FIRST_WORKER + g->n_nodes ? PROC_FIRST_WORKER + n->share
                                                                         : PROC_FIRST_WORKER + g->n_nodes,
                         n->was.place, n->was.epoch, now);
        break;
    default:
        break;
    }
}

static void *follow(void *arg)
{
    struct rig_more *m = arg;
    struct need need[MOST_NEEDS];
    struct err e = {0};

    while (!atomic_load(&m->quit)) {
        uint64_t now = now_ns();
        size_t n;
        if (atomic_load(&m->halted)) {
            sched_yield();
            continue;
        }
        if (steward_follow(m->steward, now, &e) < 0) {
            printf("steward: %s\n", e.msg);
            abort();
        }
        n = steward_needs(m->steward, now, atomic_load(&m->late_ns), need, MOST_NEEDS);
        for (size_t i = 0; i < n && i < MOST_NEEDS; i++)
            serve(m, &need[i], now);
        if (!n)
            sched_yield();
    }
    return NULL;
}

static int start_steward(struct rig_more *m, struct err *e)
{
    struct calls_rig *r = m->r;
    struct steward_config c = {.geo = &r->g,
                               .board = r->board,
                               .bells = r->bells,
                               .calls = r->calls,
                               .amends = r->amends,
                               .ring_calls = 1,
                               .first = 1};
    int rc = steward_open(&c, &m->steward, e);

    if (rc)
        return rc;
    for (uint32_t i = 0; i < m->n_workers; i++)
        steward_worker(m->steward, m->worker[i].number, r->outbox[m->worker[i].number], WORKER_LIVE);
    rc = -pthread_create(&m->thread, NULL, follow, m);
    return rc ? err_set(e, rc, "no thread") : 0;
}

/* ---- life ---- */

int calls_rig_open(const struct calls_rig_config *c, struct calls_rig *r, struct err *e)
{
    struct rig_more *m = calloc(1, sizeof *m);
    const struct geometry *g = &r->g;
    int rc = 0;

    memset(r, 0, sizeof *r);
    r->more = m;
    m->r = r;
    m->c = *c;
    m->seed = c->seed;
    make_geometry(r, c);
    r->board = segment(r, SEG_BOARD, 0, sizeof *r->board);
    r->board->geo = *g;
    r->board->watch = 1;
    r->bells = segment(r, SEG_BELLS, 0, MAX_PROCS * sizeof(struct bell));
    r->calls = segment(r, SEG_CALLS, 0, calls_bytes(g));
    r->acts = segment(r, SEG_ACTS, 0, CALLS_IN_FLIGHT * g->acts_half);
    r->amends = segment(r, SEG_AMENDS, 0, amends_bytes(g));
    make_tables(r);
    for (uint32_t i = 0; i < c->n_layers; i++)
        fill_layer(r, i);
    fill_slabs(r);
    make_pools(r);
    m->n_cpu = c->n_nodes + 1;
    for (uint32_t i = 0; i < m->n_cpu; i++)
        r->outbox[PROC_FIRST_WORKER + i] = segment(r, SEG_OUTBOX, PROC_FIRST_WORKER + i, outbox_bytes(g));
    for (uint32_t i = 0; i < RIG_CARDS; i++) {
        outbox_put(r->outbox, card_outbox(i, 0), segment(r, SEG_OUTBOX, card_outbox(i, 0), outbox_bytes(g)));
        atomic_store(table_card(r->tables, i), card_outbox(i, 0));
    }
    r->own = calloc(g->n_slabs, sizeof *r->own);
    r->changed = calloc(g->n_slabs, sizeof *r->changed);
    for (uint32_t i = 0; i < m->n_cpu && !rc; i++)
        rc = start_worker(m, PROC_FIRST_WORKER + i, -1, e);
    for (uint32_t i = 0; i < RIG_CARDS && !rc; i++)
        rc = start_worker(m, card_outbox(i, 0), (int)i, e);
    return rc ? rc : start_steward(m, e);
}

int calls_rig_close(struct calls_rig *r)
{
    struct rig_more *m = r->more;
    int rc = 0;

    for (uint32_t i = 0; i < m->n_workers; i++) {
        atomic_store(&m->worker[i].quit, 1);
        bell_wake(&r->bells[outbox_home(m->worker[i].number)]);
        pthread_join(m->worker[i].thread, NULL);
        rc |= m->worker[i].rc;
        worker_drop(&m->worker[i].w);
        maps_drop(&m->worker[i].m);
    }
    atomic_store(&m->quit, 1);
    pthread_join(m->thread, NULL);
    steward_close(m->steward);
    for (uint32_t i = 0; i < r->n_segs; i++)
        munmap(r->seg[i].base, r->seg[i].bytes);
    free(r->own);
    free(r->changed);
    free(m);
    return rc ? -1 : 0;
}

/* ---- dealing ---- */

/* Into a slot of the card; PLACE_NONE: it is full. */
static uint32_t put_on_card(struct rig_more *m, uint32_t card, uint32_t layer, uint32_t expert)
{
    const struct expert_layer *l = table_layer(m->r->tables, layer);
    uint32_t slot = card * m->c.n_slots + m->n_used[card];
    struct card_slot *s = table_slot(m->r->tables, slot);
    uint8_t *to = m->pools + card * m->r->pool_bytes + s->off;

    if (m->n_used[card] == m->c.n_slots)
        return PLACE_NONE;
    m->n_used[card]++;
    for (int mat = 0; mat < N_MATS; mat++)
        memcpy(to + slot_mat_off(l, mat), matrix(m, layer, expert, mat), l->m[mat].rows * l->m[mat].row_bytes);
    atomic_store(&s->header, ++m->epoch);
    return m->r->g.n_slabs + slot;
}

static void deal_expert(struct rig_more *m, const struct rig_deal *d, uint32_t at)
{
    const struct geometry *g = &m->r->g;
    uint32_t layer = at / g->n_experts, expert = at % g->n_experts, place = PLACE_NONE;
    uint64_t epoch = at + 1, own = 0;

    if (chance(m, d->own))
        place = put_on_card(m, 0, layer, expert);
    if (place != PLACE_NONE && !chance(m, d->strange))
        own = ENTRY(place, m->epoch);
    if (place == PLACE_NONE && chance(m, d->card))
        place = put_on_card(m, 1, layer, expert);
    if (place != PLACE_NONE)
        epoch = m->epoch;
    else if (!chance(m, d->disk))
        place = at;
    if (chance(m, d->stale))
        epoch--;
    atomic_store(table_entry(m->r->tables, g, layer, expert), place == PLACE_NONE ? 0 : ENTRY(place, epoch));
    if (m->r->own[at] != own)
        m->r->changed[m->r->n_changed++] = at;
    m->r->own[at] = own;
}

void calls_rig_deal(struct calls_rig *r, const struct rig_deal *d)
{
    struct rig_more *m = r->more;
    uint32_t first = random_of(m) % r->g.n_slabs;

    r->n_changed = 0;
    memset(m->n_used, 0, sizeof m->n_used);
    atomic_store(&m->late_ns, d->late_ns);
    for (uint32_t i = 0; i < r->g.n_slots; i++) /* what lay there has left */
        atomic_store(&table_slot(r->tables, i)->header, 0);
    for (uint32_t i = 0; i < r->g.n_slabs; i++)
        deal_expert(m, d, (first + i) % r->g.n_slabs);
}

void calls_rig_halt(struct calls_rig *r)
{
    atomic_store(&r->more->halted, 1);
}

void calls_rig_counts(const struct calls_rig *r, struct calls_rig_counts *c)
{
    const struct rig_more *m = r->more;
    const struct steward_counters *s = steward_counters(m->steward);

    *c = (struct calls_rig_counts){.amendments = s->amendments,
                                   .declined = s->declines,
                                   .late = s->late,
                                   .work_ns = atomic_load(&r->outbox[PROC_FIRST_WORKER]->count.work_ns)};
    for (uint32_t i = 0; i < m->n_workers; i++) {
        const struct outbox *o = r->outbox[m->worker[i].number];
        c->net_finds += atomic_load(&o->count.net_finds);
        if (m->worker[i].card >= 0)
            c->served[m->worker[i].card] = atomic_load(&o->count.items);
    }
}
