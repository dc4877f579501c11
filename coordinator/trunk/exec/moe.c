/* Producer of the call ring. Decides nothing about where experts live: it reads the table, names the
 * place and the owner in the item, or "on disk", and the steward does the rest. */
#include "coordinator/trunk/exec/moe.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/moe/moe.h"

#define MAX_TOP_K 64
#define OWN 0xFFFFu /* in item_of: the row is made here */

struct open_call { /* of one sub-call */
    struct call call;              /* seq 0: nothing of it is published */
    struct moe_own_call own;       /* what is computed here */
    struct call_item *own_items;   /* NULL: never anything */
    struct call_pair *own_pairs, *pairs;
    float *own_rows;
    uint32_t token0;               /* first of the layer's tokens in this sub-call */
    uint32_t n_direct;             /* outboxes named by the call itself */
    uint16_t direct[MAX_NODES + MAX_CARDS];
    uint16_t card[MAX_CARDS];      /* of these, by card; 0: not named */
    int has_disk;
    uint32_t at_item, at_share;    /* the slow look resumes here */
    uint16_t *box;                 /* by item * n_nodes + share: whose row is taken */
    uint16_t *item_of;             /* by token * top_k + rank */
};

struct moe {
    struct moe_config c;
    uint64_t next; /* number of the next call */
    struct open_call open[CALLS_IN_FLIGHT];
    uint32_t *count; /* scratch, by expert */
    /* the layer in work */
    uint32_t layer, used, n_tokens, next_token, sub_tokens;
    uint64_t first_sub, next_sub; /* sub-calls not finished; numbers of calls go to those that are published */
    const float *x;
    const int32_t *ids;
    float *keep;
    struct moe_counters count_of;
};

/* Room for what is computed here. */
static int own_open(struct open_call *o, const struct geometry *g)
{
    o->own_items = malloc(g->max_items * sizeof *o->own_items);
    o->own_pairs = malloc(g->max_pairs * sizeof *o->own_pairs);
    o->pairs = malloc(g->max_pairs * sizeof *o->pairs);
    o->own_rows = malloc((size_t)g->max_pairs * g->n_embd * sizeof *o->own_rows);
    return !o->own_items || !o->own_pairs || !o->pairs || !o->own_rows;
}

int moe_open(const struct moe_config *c, struct moe **out, struct err *e)
{
    const struct geometry *g = c->geo;
    struct moe *m;

    if (g->top_k > MAX_TOP_K)
        return err_set(e, -ENOTSUP, "%u experts a token are more than %d", g->top_k, MAX_TOP_K);
    m = calloc(1, sizeof *m);
    if (!m)
        return err_set(e, -ENOMEM, "no memory for the experts' calls");
    m->c = *c;
    m->next = c->first;
    m->count = malloc((g->n_experts + 1) * sizeof *m->count);
    for (uint32_t i = 0; i < CALLS_IN_FLIGHT; i++) {
        struct open_call *o = &m->open[i];
        o->call.items = malloc(g->max_items * sizeof *o->call.items);
        o->call.pairs = malloc(g->max_pairs * sizeof *o->call.pairs);
        o->box = malloc((size_t)g->max_items * g->n_nodes * sizeof *o->box);
        o->item_of = malloc(g->max_pairs * sizeof *o->item_of);
        if (!m->count || !o->call.items || !o->call.pairs || !o->box || !o->item_of || (c->own.hit && own_open(o, g))) {
            moe_close(m);
            return err_set(e, -ENOMEM, "no memory for the experts' calls");
        }
    }
    *out = m;
    return 0;
}

void moe_close(struct moe *m)
{
    if (!m)
        return;
    for (uint32_t i = 0; i < CALLS_IN_FLIGHT; i++) {
        free(m->open[i].call.items);
        free(m->open[i].call.pairs);
        free(m->open[i].own_items);
        free(m->open[i].own_pairs);
        free(m->open[i].pairs);
        free(m->open[i].own_rows);
        free(m->open[i].box);
        free(m->open[i].item_of);
    }
    free(m->count);
    free(m);
}

const struct moe_counters *moe_counters(const struct moe *m)
{
    return &m->count_of;
}

void moe_keep_rows(struct moe *m, float *rows)
{
    m->keep = rows;
}

static struct open_call *call_of(struct moe *m, uint64_t n)
{
    return &m->open[n % CALLS_IN_FLIGHT];
}

/* one item an expert, ascending; its pairs in token order */
static void make_items(struct moe *m, struct open_call *o, uint32_t t0, uint32_t n)
{
    const struct geometry *g = m->c.geo;
    const int32_t *ids = m->ids + (size_t)t0 * m->used;
    uint32_t n_items = 0, pairs = n * m->used;

    if (n == 1) { /* decode: an item a place, no sorting */
        for (uint32_t r = 0; r < m->used; r++) {
            o->call.items[r] = (struct call_item){.expert = (uint32_t)ids[r], .pair0 = r, .n_pairs = 1};
            o->call.pairs[r] = (struct call_pair){0, (uint16_t)r};
            o->item_of[r] = (uint16_t)r;
        }
        o->call.head.n_items = o->call.head.n_pairs = m->used;
        return;
    }
    memset(m->count, 0, (g->n_experts + 1) * sizeof *m->count);
    for (uint32_t i = 0; i < pairs; i++)
        m->count[ids[i]]++;
    for (uint32_t e = 0, at = 0; e < g->n_experts; e++) {
        uint32_t c = m->count[e];
        if (!c)
            continue;
        o->call.items[n_items] = (struct call_item){.expert = e, .pair0 = at, .n_pairs = 0};
        m->count[e] = n_items++;
        at += c;
    }
    for (uint32_t i = 0; i < pairs; i++) {
        uint32_t k = m->count[ids[i]];
        struct call_item *it = &o->call.items[k];
        o->call.pairs[it->pair0 + it->n_pairs++] =
            (struct call_pair){(uint16_t)(i / m->used), (uint16_t)(i % m->used)};
        o->item_of[i] = (uint16_t)k;
    }
    o->call.head.n_items = n_items;
    o->call.head.n_pairs = pairs;
}

/* Takes what lies on our own card out of the call. */
static void take_own(struct moe *m, struct open_call *o)
{
    struct call_head *h = &o->call.head;
    const struct call_pair *all = o->call.pairs;
    uint32_t n_items = h->n_items, n_pairs = 0, own_pairs = 0, own = 0, left = 0;

    for (uint32_t i = 0; i < n_items; i++) {
        struct call_item it = o->call.items[i];
        uint32_t place = m->c.own.hit(m->c.own.arg, m->layer, it.expert, it.n_pairs);
        struct call_pair *to = place == PLACE_NONE ? o->pairs + n_pairs : o->own_pairs + own_pairs;
        for (uint32_t k = 0; k < it.n_pairs; k++) {
            to[k] = all[it.pair0 + k];
            o->item_of[to[k].token * m->used + to[k].rank] = (uint16_t)(place == PLACE_NONE ? left : OWN);
        }
        if (place == PLACE_NONE) {
            it.pair0 = n_pairs;
            n_pairs += it.n_pairs;
            o->call.items[left++] = it;
        } else {
            it.place = place;
            it.pair0 = own_pairs;
            own_pairs += it.n_pairs;
            o->own_items[own++] = it;
        }
    }
    memcpy(o->call.pairs, o->pairs, n_pairs * sizeof *o->pairs);
    h->n_items = left;
    h->n_pairs = n_pairs;
    o->own = (struct moe_own_call){m->layer, m->used, own, o->own_items, o->own_pairs,
                                   m->x + (size_t)o->token0 * m->c.geo->n_embd, o->own_rows};
    m->count_of.own_items += own;
}

/* The card that has the place; -1: it is a slab. */
static int card_of(const struct moe *m, uint32_t place)
{
    int c = (int)m->c.n_cards - 1;

    if (place < m->c.geo->n_slabs)
        return -1;
    while (c > 0 && place - m->c.geo->n_slabs < m->c.card_slot0[c])
        c--;
    return c;
}
/* The outbox of the card's worker; 0: there is none now. Loaded after the entry that named its slot. */
static uint16_t worker_of(const struct moe *m, int card)
{
    return (uint16_t)atomic_load_explicit(table_card(m->c.tables, (uint32_t)card), memory_order_acquire);
}

static void find_owners(struct moe *m, struct open_call *o)
{
    const struct geometry *g = m->c.geo;
    int nodes = 0;

    o->has_disk = 0;
    o->n_direct = 0;
    memset(o->card, 0, sizeof o->card);
    for (uint32_t i = 0; i < o->call.head.n_items; i++) {
        struct call_item *it = &o->call.items[i];
        uint16_t worker = 0;
        int card;
        uint64_t entry = atomic_load_explicit(table_entry(m->c.tables, g, m->layer, it->expert),
                                              memory_order_acquire);
        if (m->c.told.expert)
            m->c.told.expert(m->c.told.arg, m->layer, it->expert, it->n_pairs);
        card = entry ? card_of(m, ENTRY_PLACE(entry)) : -1;
        if (card >= 0 && !(worker = o->card[card] ? o->card[card] : worker_of(m, card)))
            entry = 0; /* its worker has just died: the steward finds the expert another place */
        it->place = entry ? ENTRY_PLACE(entry) : PLACE_NONE;
        it->epoch = ENTRY_EPOCH(entry);
        for (uint32_t k = 0; k < g->n_nodes; k++)
            it->owner[k] = (uint16_t)(worker ? worker : entry ? m->c.owner[k] : OWNER_DISK);
        if (!entry) {
            o->has_disk = 1;
            m->count_of.disk_items++;
        } else if (worker) {
            m->count_of.card_items++;
            if (!o->card[card])
                o->direct[o->n_direct++] = worker;
            o->card[card] = worker;
        } else if (!nodes) {
            nodes = 1;
            for (uint32_t k = 0; k < g->n_nodes; k++)
                o->direct[o->n_direct++] = (uint16_t)m->c.owner[k];
        }
    }
}

/* A card's worker may have died between the table and the call: the steward, who looks at the ring after it
 * has taken the number away, or we, who look at the number after we have published, see that the call wants
 * somebody else (both fences are seq_cst). */
static int lost_card(const struct moe *m, const struct open_call *o)
{
    for (uint32_t k = 0; k < m->c.n_cards; k++)
        if (o->card[k] && worker_of(m, (int)k) != o->card[k])
            return 1;
    return 0;
}

static void ring_all(struct moe *m, uint64_t n, const struct open_call *o)
{
    int steward;

    atomic_thread_fence(memory_order_seq_cst);
    steward = o->has_disk || lost_card(m, o);
    for (uint32_t k = 0; k < m->c.geo->n_nodes; k++)
        bell_ring_fenced(&m->c.bells[m->c.owner[k]], &m->c.outbox[m->c.owner[k]]->asleep);
    for (uint32_t k = 0; k < m->c.n_cards; k++)
        if (o->card[k])
            bell_ring_fenced(&m->c.bells[outbox_home(o->card[k])], &m->c.outbox[o->card[k]]->asleep);
    if (steward) {
        atomic_store_explicit(m->c.disk_call, n, memory_order_release);
        bell_ring(&m->c.bells[PROC_STEWARD], &m->c.board->asleep_steward);
    }
    atomic_store_explicit(&m->c.board->calls_rung, n, memory_order_release);
}

static void publish_next(struct moe *m)
{
    const struct geometry *g = m->c.geo;
    struct open_call *o = call_of(m, m->next_sub++);
    uint32_t t0 = m->next_token, n = m->n_tokens - t0;
    uint64_t half = (m->next % CALLS_IN_FLIGHT) * g->acts_half; /* at most so many are open */
    uint64_t traced = timeline_begin(&m->c.timeline);

    if (n > m->sub_tokens)
        n = m->sub_tokens;
    o->token0 = t0;
    o->at_item = o->at_share = 0;
    o->call.head = (struct call_head){
        .seq = m->next, .layer = m->layer, .n_tokens = n, .top_k = m->used, .acts = half};
    make_items(m, o, t0, n);
    m->next_token += n;
    if (m->c.own.hit)
        take_own(m, o);
    if (!o->call.head.n_items) { /* numbers go on without a gap (rule 22) */
        o->call.head.seq = 0;
        return;
    }
    find_owners(m, o);
    memcpy((uint8_t *)m->c.acts + half, m->x + (size_t)t0 * g->n_embd,
           (size_t)n * g->n_embd * sizeof(float));
    call_publish(g, m->c.calls, &o->call);
    if (m->c.rings)
        ring_all(m, m->next, o);
    else
        bell_ring(&m->c.bells[PROC_STEWARD], &m->c.board->asleep_steward);
    m->next++;
    m->count_of.calls++;
    m->count_of.items += o->call.head.n_items;
    timeline_end(&m->c.timeline, m->c.lane, TIMELINE_PUBLISH, traced, o->call.head.seq, m->layer, o->call.head.n_items);
}

void moe_step(struct moe *m, uint32_t n_tokens)
{
    if (m->c.told.step)
        m->c.told.step(m->c.told.arg, n_tokens);
}

void moe_begin(struct moe *m, uint32_t layer, uint32_t used, const float *x, const int32_t *ids,
               uint32_t n_tokens)
{
    uint32_t parts = (n_tokens + m->c.geo->max_tokens - 1) / m->c.geo->max_tokens;
    uint64_t start = now_ns();

    if (m->c.told.layer)
        m->c.told.layer(m->c.told.arg, layer, used, ids);
    m->layer = layer;
    m->used = used;
    m->x = x;
    m->ids = ids;
    m->n_tokens = n_tokens;
    m->next_token = 0;
    m->sub_tokens = (n_tokens + parts - 1) / parts; /* equal token ranges */
    while (m->next_token < n_tokens && m->next_sub - m->first_sub < CALLS_IN_FLIGHT)
        publish_next(m);
    m->count_of.call_ns += now_ns() - start;
}

int moe_foresees(const struct moe *m)
{
    return m->c.told.foreseen && m->c.told.foresee && *m->c.told.foresee;
}

void moe_foresee(struct moe *m, uint32_t layer, const uint32_t *experts, uint32_t n)
{
    uint32_t absent[MAX_TOP_K] = {0}, k = 0;

    for (uint32_t i = 0; i < n && k < MAX_TOP_K; i++) {
        uint32_t seen = 0;
        while (seen < k && absent[seen] != experts[i])
            seen++;
        if (seen == k && !atomic_load_explicit(table_entry(m->c.tables, m->c.geo, layer, experts[i]),
                                               memory_order_relaxed))
            absent[k++] = experts[i];
    }
    m->c.told.foreseen(m->c.told.arg, layer, absent, k);
    if (k && m->c.rings)
        bell_ring(&m->c.bells[PROC_STEWARD], &m->c.board->asleep_steward);
}

/* Is every share of the call answered DONE by its present owner? Remembers how far it came. */
static int complete(struct moe *m, struct open_call *o)
{
    const struct geometry *g = m->c.geo;
    uint64_t n = o->call.head.seq;

    if (!o->at_item && !o->at_share && !o->has_disk) { /* the usual case: plain owner stamps */
        uint32_t k = 0;
        while (k < o->n_direct &&
               atomic_load_explicit(&m->c.outbox[o->direct[k]]->owner[n % CALL_SLOTS],
                                    memory_order_acquire) == 2 * n)
            k++;
        if (k == o->n_direct) {
            for (uint32_t i = 0; i < o->call.head.n_items; i++)
                for (k = 0; k < g->n_nodes; k++)
                    o->box[i * g->n_nodes + k] = o->call.items[i].owner[k];
            o->at_item = o->call.head.n_items;
            return 1;
        }
    }
    for (; o->at_item < o->call.head.n_items; o->at_item++, o->at_share = 0) {
        for (; o->at_share < g->n_nodes; o->at_share++) {
            uint32_t i = o->at_item, k = o->at_share, box;
            if (!share_done(g, m->c.amends, m->c.outbox, n, i, k, o->call.items[i].owner[k], &box))
                return 0;
            o->box[i * g->n_nodes + k] = (uint16_t)box;
        }
    }
    return 1;
}

struct waiting {
    struct moe *m;
    struct open_call *o;
};
/* An enum look. A stamp that is there counts as rung once its worker is not in the middle of ringing. */
static int call_complete(void *arg)
{
    struct waiting *l = arg;

    if (!complete(l->m, l->o))
        return LOOK_NOTHING;
    for (uint32_t k = 0; k < l->m->c.geo->n_nodes; k++)
        if (atomic_load_explicit(&l->m->c.outbox[l->m->c.owner[k]]->ringing, memory_order_acquire) & 1)
            return LOOK_FOUND;
    for (uint32_t k = 0; k < 2 * l->m->c.n_cards; k++) { /* named by the call; by an amendment, perhaps */
        uint32_t w = k % 2 ? l->o->card[k / 2] : worker_of(l->m, (int)(k / 2));
        if (w && atomic_load_explicit(&l->m->c.outbox[w]->ringing, memory_order_acquire) & 1)
            return LOOK_FOUND;
    }
    return LOOK_RUNG;
}

static void wait_complete(struct moe *m, struct open_call *o)
{
    struct waiting l = {m, o};
    uint32_t round = 0;
    uint64_t start;

    if (!o->call.head.seq || complete(m, o))
        return;
    start = now_ns();
    while (!complete(m, o)) {
        if (wait_round(&round, m->c.shared))
            continue;
        m->count_of.sleeps++;
        enum bell_end how = bell_sleep(&m->c.bells[PROC_TRUNK], &m->c.calls->asleep, call_complete, &l, 0);
        if (how == BELL_NET)
            m->count_of.net_finds++;
        round = 0;
    }
    m->count_of.wait_ns += now_ns() - start;
    timeline_end(&m->c.timeline, m->c.lane, TIMELINE_WAIT, start, o->call.head.seq, m->layer, 0);
}

/* Tokens t, of the call, that thread has to sum. */
static void sum_tokens(struct moe *m, struct open_call *o, uint32_t t0, uint32_t t1, const float *weights,
                       float *y)
{
    const struct geometry *g = m->c.geo;
    uint64_t n = o->call.head.seq;
    const float *rows[MAX_TOP_K];

    for (uint32_t t = t0; t < t1; t++) {
        uint32_t at = o->token0 + t;
        for (uint32_t k = 0; k < g->n_nodes; k++) {
            uint32_t r0 = share_row(g->n_embd, k, g->n_nodes),
                     r1 = share_row(g->n_embd, k + 1, g->n_nodes);
            for (uint32_t p = 0; p < m->used; p++) {
                uint32_t pair = t * m->used + p;
                rows[p] = (o->item_of[pair] == OWN
                               ? o->own_rows
                               : outbox_rows(g, m->c.outbox[o->box[o->item_of[pair] * g->n_nodes + k]], n)) +
                          (size_t)pair * g->n_embd + r0;
                if (m->keep)
                    memcpy(m->keep + ((size_t)at * m->used + p) * g->n_embd + r0, rows[p],
                           (r1 - r0) * sizeof(float));
            }
            if (r1 > r0)
                moe_sum(weights + (size_t)at * m->used, rows, m->used, y + (size_t)at * g->n_embd + r0,
                        r1 - r0);
        }
    }
}

void moe_finish(struct moe *m, struct team *t, int thread, int n_threads, int parallel,
                const float *weights, float *y)
{
    /* every thread walks the same sub-calls; only the leader changes m, between two meetings */
    uint64_t n = m->first_sub, last = n + (m->n_tokens + m->sub_tokens - 1) / m->sub_tokens;
    uint64_t start = thread ? 0 : now_ns();

    for (; n < last; n++) {
        struct open_call *o = call_of(m, n);
        uint64_t traced = 0;
        if (o->own.n_items) {
            traced = thread ? 0 : timeline_begin(&m->c.timeline);
            m->c.own.compute(m->c.own.arg, &o->own, thread, n_threads);
            if (!thread)
                timeline_end(&m->c.timeline, m->c.lane, TIMELINE_OWN, traced, 0, m->layer, o->own.n_items);
        }
        if (thread == 0) {
            wait_complete(m, o);
            if (o->call.head.seq)
                fault_pass(FAULT_SUM);
            traced = timeline_begin(&m->c.timeline);
        }
        if (parallel) {
            team_meet(t);
            uint32_t all = o->call.head.n_tokens;
            sum_tokens(m, o, (uint32_t)((uint64_t)all * thread / n_threads),
                       (uint32_t)((uint64_t)all * (thread + 1) / n_threads), weights, y);
            team_meet(t);
        } else {
            sum_tokens(m, o, 0, o->call.head.n_tokens, weights, y);
        }
        if (thread == 0) {
            timeline_end(&m->c.timeline, m->c.lane, TIMELINE_SUM, traced, o->call.head.seq, m->layer, 0);
            if (o->call.head.seq) {
                fault_pass(FAULT_RETIRE);
                call_retire(m->c.geo, m->c.calls, o->call.head.seq);
            }
            m->first_sub = n + 1;
            if (m->next_token < m->n_tokens)
                publish_next(m);
        }
    }
    if (thread == 0) {
        m->keep = NULL;
        m->count_of.call_ns += now_ns() - start;
    }
}
