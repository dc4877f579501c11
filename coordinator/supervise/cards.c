/* Experts go to cards and leave them here. */
#include "coordinator/supervise/cards.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OPEN_MAX 2u /* uploads of a card at a time: one is copied, one waits */
#define SCAN 1024u  /* experts looked at in a round */
#define MOVES 1.0   /* replacements a token in the mean: an upload shares the memory's rate with the decode */

enum slot_state {
    SLOT_FREE,
    SLOT_CLEARING, /* out of the table; the trunk's card has yet to say that its copy follows */
    SLOT_LEAVING,  /* a giving that has not been stamped names it */
    SLOT_UPLOADING,
    SLOT_RESIDENT
};
struct slot {
    enum slot_state state;
    uint32_t layer, expert; /* CLEARING, LEAVING: who comes next; layer PLACE_NONE: nobody */
    uint32_t slab;          /* UPLOADING: the source */
    uint64_t epoch, order;
};
struct cards {
    struct cards_config c;
    struct policy *policy;
    struct slot *slot;
    uint32_t *slot_of; /* by layer * n_experts + expert: uploading or resident, or PLACE_NONE */
    uint64_t *asked;   /* by the same: last use when it was last considered */
    uint32_t *busy, n_busy; /* slots leaving or uploading */
    uint64_t next_order[MAX_CARDS], next_epoch;
    uint32_t n_open[MAX_CARDS], n_free, churn_at;
    uint64_t churned_ns;
    int absent[MAX_CARDS]; /* has no worker now */
    size_t at, fresh; /* the scan: next, and how many are still to be looked at */
    _Atomic uint64_t uploads, bytes, left, came[MAX_CARDS];
    _Atomic uint32_t experts, held[MAX_CARDS];
    _Atomic int filling;
};

#define ADD(x, n) atomic_fetch_add_explicit(&(x), (n), memory_order_relaxed)
#define GET(x) atomic_load_explicit(&(x), memory_order_relaxed)

static size_t n_experts(const struct cards *c)
{
    return (size_t)c->c.geo->n_layers * c->c.geo->n_experts;
}
static uint32_t *slot_of(const struct cards *c, uint32_t layer, uint32_t expert)
{
    return &c->slot_of[(size_t)layer * c->c.geo->n_experts + expert];
}
static const struct card_slot *shape(const struct cards *c, uint32_t i)
{
    return table_slot(c->c.tables, i);
}
static uint32_t place(const struct cards *c, uint32_t i)
{
    return c->c.geo->n_slabs + i;
}

/* May an order go to this card now? The answers to all that are open can still be told apart. */
static int can_order(const struct cards *c, uint32_t card)
{
    uint64_t oldest = c->next_order[card];

    for (uint32_t n = 0; n < c->n_busy; n++) {
        const struct slot *s = &c->slot[c->busy[n]];
        if (s->state != SLOT_LEAVING && shape(c, c->busy[n])->card == card && s->order < oldest)
            oldest = s->order;
    }
    return !c->absent[card] && order_fits(c->c.geo, c->next_order[card], oldest) &&
           order_room(c->c.geo, c->c.card[card].answers, c->next_order[card]);
}
static void publish(struct cards *c, const struct order *o, uint32_t card)
{
    const struct card_channel *ch = &c->c.card[card];

    order_publish(c->c.geo, ch->orders, o, &c->c.bells[ch->bell], &ch->answers->asleep);
}

/* ---- coming ---- */

/* Node k's rows of a matrix: from where they lie in the slab to where they belong in the slot. */
static void add_piece(struct cards *c, struct order *o, int mat, uint32_t k, uint32_t slab, uint64_t slot_off)
{
    const struct geometry *g = c->c.geo;
    const struct expert_layer *l = table_layer(c->c.tables, o->layer);
    struct slab_piece p = slab_piece(l, o->expert, k, g->n_nodes, mat);

    if (!p.bytes)
        return;
    o->piece[o->n_pieces++] = (struct order_piece){
        .seg = 1 + k,
        .file_off = *table_slab_off(c->c.tables, g, k, slab) + p.off + p.shift,
        .bytes = p.bytes,
        .need = p.bytes,
        .dst = slot_off + slot_mat_off(l, mat) + share_row(l->m[mat].rows, k, g->n_nodes) * l->m[mat].row_bytes};
    ADD(c->bytes, p.bytes);
}

static void upload(struct cards *c, uint32_t i, uint32_t layer, uint32_t expert, uint32_t slab)
{
    const struct geometry *g = c->c.geo;
    const struct card_slot *to = shape(c, i);
    struct order o = {.number = c->next_order[to->card]++,
                      .kind = ORDER_UPLOAD,
                      .prio = PRIO_PREFETCH,
                      .layer = layer,
                      .expert = expert,
                      .place = place(c, i),
                      .epoch = c->next_epoch++};

    for (int m = 0; m < N_MATS; m++)
        for (uint32_t k = 0; k < g->n_nodes; k++)
            add_piece(c, &o, m, k, slab, to->off);
    c->slot[i] = (struct slot){SLOT_UPLOADING, layer, expert, slab, o.epoch, o.number};
    c->n_free--;
    c->n_open[to->card]++;
    c->busy[c->n_busy++] = i;
    *slot_of(c, layer, expert) = i;
    policy_enter(c->policy, layer, expert, to->size);
    c->c.hold(c->c.arg, slab, 1);
    publish(c, &o, to->card);
}

static void arrive(struct cards *c, uint32_t i)
{
    struct slot *s = &c->slot[i];
    uint32_t card = shape(c, i)->card;

    s->state = SLOT_RESIDENT;
    atomic_store_explicit(&table_slot(c->c.tables, i)->header, s->epoch, memory_order_release);
    atomic_store_explicit(table_entry(c->c.tables, c->c.geo, s->layer, s->expert), ENTRY(place(c, i), s->epoch),
                          memory_order_release);
    c->n_open[card]--;
    c->c.hold(c->c.arg, s->slab, -1);
    c->c.came(c->c.arg, s->layer, s->expert);
    ADD(c->uploads, 1);
    ADD(c->experts, 1);
    ADD(c->held[card], 1);
    ADD(c->came[card], 1);
}

/* ---- leaving ---- */

static int named(struct cards *c, uint32_t i)
{
    struct err e = {0};
    int rc = steward_place_named(c->c.steward, place(c, i), now_ns(), &e);

    if (rc < 0)
        watch_fatal(*c->c.watch, "steward: %s", e.msg);
    return rc;
}

static void set_free(struct cards *c, uint32_t i)
{
    c->slot[i].state = SLOT_FREE;
    c->n_free++;
}

static void set_busy(struct cards *c, uint32_t i, enum slot_state state, uint32_t layer, uint32_t expert, uint64_t order)
{
    c->slot[i] = (struct slot){.state = state, .layer = layer, .expert = expert, .order = order};
    c->busy[c->n_busy++] = i;
}

/* No copy of the table names it: the header, and it is free at once, or when its givings are over. Returns
 * whether it is. */
static int unhead(struct cards *c, uint32_t i)
{
    atomic_store_explicit(&table_slot(c->c.tables, i)->header, 0, memory_order_release);
    steward_ring_workers(c->c.steward);
    return !named(c, i);
}

/* Out of the tables, for another expert. */
static void leave(struct cards *c, uint32_t i, uint32_t layer, uint32_t expert)
{
    struct slot *s = &c->slot[i];
    uint64_t epoch = 0;
    uint32_t slab = c->c.in_ram(c->c.arg, s->layer, s->expert, &epoch), card = shape(c, i)->card;

    atomic_store_explicit(table_entry(c->c.tables, c->c.geo, s->layer, s->expert),
                          slab == PLACE_NONE ? 0 : ENTRY(slab, epoch), memory_order_release);
    *slot_of(c, s->layer, s->expert) = PLACE_NONE;
    policy_leave(c->policy, s->layer, s->expert);
    atomic_fetch_sub_explicit(&c->experts, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&c->held[card], 1, memory_order_relaxed);
    ADD(c->left, 1);
    if (c->c.trunk == (int)card) {
        struct order o = {.number = c->next_order[card]++, .kind = ORDER_CLEAR, .layer = s->layer, .expert = s->expert,
                          .place = place(c, i), .epoch = s->epoch};
        set_busy(c, i, SLOT_CLEARING, layer, expert, o.number);
        publish(c, &o, card);
    } else if (unhead(c, i)) {
        set_free(c, i);
    } else {
        set_busy(c, i, SLOT_LEAVING, layer, expert, 0);
    }
}

static int may_leave(void *arg, uint32_t layer, uint32_t expert)
{
    struct cards *c = arg;
    uint32_t i = *slot_of(c, layer, expert);

    return c->slot[i].state == SLOT_RESIDENT && c->n_open[shape(c, i)->card] < OPEN_MAX &&
           can_order(c, shape(c, i)->card);
}

/* ---- who goes ---- */

/* A free slot of the class, on the card that holds the fewest for its number of slots and can take another
 * upload now. */
static uint32_t free_slot(const struct cards *c, uint32_t size)
{
    uint32_t best = PLACE_NONE;
    uint32_t least = UINT32_MAX;

    for (uint32_t i = 0; i < c->c.geo->n_slots; i++) {
        uint32_t card = shape(c, i)->card, load = GET(c->held[card]) + c->n_open[card];
        if (c->slot[i].state != SLOT_FREE || shape(c, i)->size != size || load >= least ||
            c->n_open[card] >= OPEN_MAX || !can_order(c, card))
            continue;
        best = i;
        least = load;
    }
    return best;
}

/* An expert that lies in RAM and on no card. Returns whether its upload began. */
static int consider(struct cards *c, uint32_t layer, uint32_t expert, uint32_t slab)
{
    uint64_t used = policy_last_use(c->policy, layer, expert);
    uint64_t *asked = &c->asked[(size_t)layer * c->c.geo->n_experts + expert];
    struct policy_answer a;
    uint32_t i;

    if (!c->n_free && used == *asked)
        return 0;
    *asked = used;
    a = policy_admit(c->policy, layer, expert, 0, may_leave, c);
    if (a.verdict == POLICY_REPLACE)
        leave(c, *slot_of(c, a.layer, a.expert), layer, expert);
    else if (a.verdict != POLICY_FREE)
        return 0;
    i = free_slot(c, a.place);
    if (i == PLACE_NONE)
        return 0;
    upload(c, i, layer, expert, slab);
    return 1;
}

static int can_upload(const struct cards *c)
{
    for (uint32_t k = 0; k < c->c.plan->n_cards; k++)
        if (c->n_open[k] < OPEN_MAX && !c->absent[k])
            return 1;
    return 0;
}

/* The same expert number of every layer, then the next: so that a pool that holds few has some of all
 * layers. */
static int scan(struct cards *c)
{
    const struct geometry *g = c->c.geo;
    int moved = 0;

    for (uint32_t n = 0; n < SCAN && c->fresh && can_upload(c); n++, c->fresh--) {
        uint32_t layer = (uint32_t)(c->at % g->n_layers), expert = (uint32_t)(c->at / g->n_layers), slab;
        uint64_t epoch;
        c->at = (c->at + 1) % n_experts(c);
        if (expert >= table_layer(c->c.tables, layer)->n_experts || *slot_of(c, layer, expert) != PLACE_NONE)
            continue;
        slab = c->c.in_ram(c->c.arg, layer, expert, &epoch);
        if (slab != PLACE_NONE)
            moved |= consider(c, layer, expert, slab);
    }
    return moved || (c->fresh && can_upload(c));
}

/* ---- rounds ---- */

/* The expert for which the slot was left, if it still can come. */
static void come_next(struct cards *c, uint32_t i)
{
    struct slot next = c->slot[i];
    uint32_t slab;
    uint64_t epoch;

    if (next.layer == PLACE_NONE || *slot_of(c, next.layer, next.expert) != PLACE_NONE)
        return;
    slab = c->c.in_ram(c->c.arg, next.layer, next.expert, &epoch);
    if (slab != PLACE_NONE && c->n_open[shape(c, i)->card] < OPEN_MAX && can_order(c, shape(c, i)->card))
        upload(c, i, next.layer, next.expert, slab);
}

/* A slot that waits for something. 1: the wait is over, and it is what comes next. */
static int advance_one(struct cards *c, uint32_t i)
{
    struct slot *s = &c->slot[i];
    uint32_t card = shape(c, i)->card;
    int answer = s->state == SLOT_LEAVING ? 0 : order_answer(c->c.geo, c->c.card[card].answers, s->order);

    if (s->state == SLOT_LEAVING)
        return !named(c, i);
    if (answer < 0) { /* the worker's own line ends the run from the watching thread */
        sleep(1);
        watch_fatal(*c->c.watch, "card %u: layer %u expert %u cannot be %s", card, s->layer, s->expert,
                    s->state == SLOT_CLEARING ? "cleared" : "uploaded");
    }
    if (!answer)
        return 0;
    if (s->state == SLOT_UPLOADING || unhead(c, i))
        return 1;
    s->state = SLOT_LEAVING;
    return 0;
}

static int advance(struct cards *c)
{
    int moved = 0;

    for (uint32_t n = 0; n < c->n_busy;) {
        uint32_t i = c->busy[n];
        if (!advance_one(c, i)) {
            n++;
            continue;
        }
        c->busy[n] = c->busy[--c->n_busy];
        moved = 1;
        if (c->slot[i].state == SLOT_UPLOADING) {
            arrive(c, i);
        } else {
            set_free(c, i);
            come_next(c, i);
        }
    }
    return moved;
}

/* Tests: the next resident of each card leaves, whatever it is worth. */
static int churn(struct cards *c)
{
    const struct card_plan *p = c->c.plan;
    uint64_t now = now_ns();
    int moved = 0;

    if (now - c->churned_ns < c->c.churn_us * 1000ull)
        return 0;
    c->churned_ns = now;
    c->churn_at++;
    for (uint32_t k = 0; k < p->n_cards; k++) {
        uint32_t n = p->slot0[k + 1] - p->slot0[k], i = p->slot0[k];
        for (uint32_t j = 0; j < n; j++) {
            i = p->slot0[k] + (c->churn_at + j) % n;
            if (c->slot[i].state == SLOT_RESIDENT)
                break;
        }
        if (c->slot[i].state != SLOT_RESIDENT || !can_order(c, k))
            continue;
        leave(c, i, PLACE_NONE, 0);
        moved = 1;
    }
    return moved;
}

int cards_round(struct cards *c, int news)
{
    int moved = advance(c);

    if (c->c.churn_us)
        moved |= churn(c);
    if (moved || news)
        c->fresh = n_experts(c);
    moved |= scan(c);
    atomic_store_explicit(&c->filling, c->n_busy || c->fresh, memory_order_release);
    return moved;
}

int cards_look(const struct cards *c)
{
    for (uint32_t n = 0; n < c->n_busy; n++) {
        const struct slot *s = &c->slot[c->busy[n]];
        if (s->state != SLOT_LEAVING &&
            order_answer(c->c.geo, c->c.card[shape(c, c->busy[n])->card].answers, s->order))
            return 1;
    }
    return 0;
}

uint32_t cards_place(const struct cards *c, uint32_t layer, uint32_t expert, uint64_t *epoch)
{
    uint32_t i = c ? *slot_of(c, layer, expert) : PLACE_NONE;

    if (i == PLACE_NONE || c->slot[i].state != SLOT_RESIDENT)
        return PLACE_NONE;
    *epoch = c->slot[i].epoch;
    return place(c, i);
}

uint32_t cards_outbox(const struct cards *c, uint32_t place)
{
    return c->c.card[shape(c, place - c->c.geo->n_slabs)->card].outbox;
}

/* ---- a card's worker has gone ---- */

/* Who waits for an order of the dead waits no longer. */
static void forget_order(struct cards *c, uint32_t i)
{
    struct slot *s = &c->slot[i];

    if (s->state == SLOT_UPLOADING) {
        c->c.hold(c->c.arg, s->slab, -1);
        *slot_of(c, s->layer, s->expert) = PLACE_NONE;
        policy_leave(c->policy, s->layer, s->expert);
        c->n_open[shape(c, i)->card]--;
    }
    s->state = SLOT_LEAVING;
    s->layer = PLACE_NONE;
    atomic_store_explicit(&table_slot(c->c.tables, i)->header, 0, memory_order_release);
}

void cards_lost(struct cards *c, uint32_t card)
{
    const struct card_plan *p = c->c.plan;
    struct card_channel *ch = &c->c.card[card];

    c->absent[card] = 1;
    atomic_store_explicit(table_card(c->c.tables, card), 0, memory_order_release);
    for (uint32_t n = 0; n < c->n_busy; n++)
        if (shape(c, c->busy[n])->card == card && c->slot[c->busy[n]].state != SLOT_LEAVING)
            forget_order(c, c->busy[n]);
    for (uint32_t i = p->slot0[card]; i < p->slot0[card + 1]; i++) {
        struct slot *s = &c->slot[i];
        uint64_t epoch = 0;
        uint32_t slab;
        if (s->state != SLOT_RESIDENT)
            continue;
        slab = c->c.in_ram(c->c.arg, s->layer, s->expert, &epoch);
        atomic_store_explicit(table_entry(c->c.tables, c->c.geo, s->layer, s->expert),
                              slab == PLACE_NONE ? 0 : ENTRY(slab, epoch), memory_order_release);
        atomic_store_explicit(&table_slot(c->c.tables, i)->header, 0, memory_order_release);
        *slot_of(c, s->layer, s->expert) = PLACE_NONE;
        policy_leave(c->policy, s->layer, s->expert);
        atomic_fetch_sub_explicit(&c->experts, 1, memory_order_relaxed);
        atomic_fetch_sub_explicit(&c->held[card], 1, memory_order_relaxed);
        set_busy(c, i, SLOT_LEAVING, PLACE_NONE, 0, 0);
    }
    for (uint64_t n = c->next_order[card] > c->c.geo->order_slots ? c->next_order[card] - c->c.geo->order_slots : 1;
         n < c->next_order[card]; n++) /* what it has not answered is answered for it */
        if (!order_answer(c->c.geo, ch->answers, n))
            order_done(c->c.geo, ch->answers, n, ORDER_WHY_CANCELLED, 0);
    steward_worker(c->c.steward, ch->outbox, c->c.box[ch->outbox], WORKER_REAPED);
}

void cards_back(struct cards *c, uint32_t card, uint32_t outbox)
{
    c->c.card[card].outbox = outbox;
    steward_worker(c->c.steward, outbox, c->c.box[outbox], WORKER_LIVE);
    atomic_store_explicit(table_card(c->c.tables, card), outbox, memory_order_release);
    c->absent[card] = 0;
    c->fresh = n_experts(c);
}

struct policy *cards_policy(struct cards *c)
{
    return c->policy;
}

/* ---- life ---- */

int cards_open(const struct cards_config *config, struct cards **out, struct err *e)
{
    const struct geometry *g = config->geo;
    struct policy_config pc = {.kind = POLICY_HEAT, /* the others move at every use */
                               .n_layers = g->n_layers,
                               .n_experts = g->n_experts,
                               .n_sizes = config->plan->pools.n,
                               .size_of = config->size_of,
                               .margin = POLICY_MARGIN,
                               .moves = MOVES};
    struct cards *c = calloc(1, sizeof *c);
    int rc = -ENOMEM;

    if (!c)
        return err_set(e, -ENOMEM, "no memory for the cards' books");
    c->c = *config;
    c->next_epoch = 1;
    c->slot = calloc(g->n_slots, sizeof *c->slot);
    c->slot_of = malloc(n_experts(c) * sizeof *c->slot_of);
    c->asked = calloc(n_experts(c), sizeof *c->asked);
    c->busy = malloc(g->n_slots * sizeof *c->busy);
    if (!c->slot || !c->slot_of || !c->asked || !c->busy) {
        err_set(e, rc, "no memory for the books of %u slots", g->n_slots);
        goto failed;
    }
    for (size_t i = 0; i < n_experts(c); i++)
        c->slot_of[i] = PLACE_NONE;
    for (uint32_t k = 0; k < config->plan->n_cards; k++) {
        c->next_order[k] = 1;
        atomic_store_explicit(table_card(config->tables, k), config->card[k].outbox, memory_order_release);
    }
    for (uint32_t s = 0; s < pc.n_sizes; s++)
        pc.places[s] = config->plan->pools.places[s];
    c->n_free = g->n_slots;
    c->fresh = n_experts(c);
    c->filling = 1;
    rc = policy_open(&pc, &c->policy, e);
    if (rc)
        goto failed;
    *out = c;
    return 0;
failed:
    cards_close(c);
    return rc;
}

void cards_close(struct cards *c)
{
    if (!c)
        return;
    policy_close(c->policy);
    free(c->slot);
    free(c->slot_of);
    free(c->asked);
    free(c->busy);
    free(c);
}

void cards_stats(const struct cards *c, struct cards_stats *s)
{
    memset(s, 0, sizeof *s);
    if (!c)
        return;
    s->slots = c->c.geo->n_slots;
    s->experts = GET(c->experts);
    s->uploads = GET(c->uploads);
    s->upload_bytes = GET(c->bytes);
    s->left = GET(c->left);
    s->filling = atomic_load_explicit(&c->filling, memory_order_acquire);
    for (uint32_t k = 0; k < c->c.plan->n_cards; k++) {
        s->held[k] = GET(c->held[k]);
        s->came[k] = GET(c->came[k]);
    }
}
