/* Experts go to cards and leave them here. */
#include "coordinator/supervise/cards.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/residency/predict.h"
#include "shm/amends.h"

#define OPEN_MAX 2u /* uploads of a card at a time: one is copied, one waits */
#define SCAN 1024u  /* experts looked at in a round */
#define WEIGH 32u   /* tokens between two looks at who has which part of the uses */
#define PRIOR 32.0  /* tokens, evenly routed, that are taken to have been before the first: few uses say little */
#define SHED 4u     /* experts that a card with too much gives back at a time */
#define MOVES 1.0   /* replacements a token in the mean: an upload shares the memory's rate with the decode */

enum slot_state {
    SLOT_FREE,
    SLOT_CLEARING, /* out of the table; the trunk's card has yet to say that its copy follows */
    SLOT_LEAVING,  /* a giving that has not been stamped names it */
    SLOT_UPLOADING,
    SLOT_RESIDENT,
    SLOT_SINKING   /* resident, and being copied to a slab before it leaves */
};
struct slot {
    enum slot_state state;
    uint32_t layer, expert; /* CLEARING, LEAVING: who comes next; layer PLACE_NONE: nobody */
    uint32_t slab;          /* UPLOADING: the source; SINKING: where to */
    uint32_t next_layer, next_expert; /* SINKING: who comes next */
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
    struct spread spread;
    uint64_t weighed_at;   /* tokens: parts, loads and targets are of then */
    float *part;           /* of all uses, by layer * n_experts + expert: what a load is the sum of */
    float *uses;           /* scratch */
    uint8_t up[MAX_CARDS];  /* its worker follows the rings */
    uint64_t lost_at[MAX_CARDS][2]; /* by the worker's number modulo 2: how far the executor was when it died */
    uint32_t *hot, hot_at, n_hot; /* at a warm start and after a death: layer * n_experts + expert, the hottest first */
    size_t at, fresh; /* the scan: next, and how many are still to be looked at */
    _Atomic uint64_t uploads, bytes, left, down, came[MAX_CARDS];
    _Atomic uint32_t experts, held[MAX_CARDS], deaths, successors, out;
    _Atomic uint64_t lost_items;
    struct card_past past[MAX_CARDS];
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
    return c->up[card] && order_fits(c->c.geo, c->next_order[card], oldest) &&
           order_room(c->c.geo, c->c.card[card].answers, c->next_order[card]);
}
static void publish(struct cards *c, const struct order *o, uint32_t card)
{
    const struct card_channel *ch = &c->c.card[card];

    order_publish(c->c.geo, ch->orders, o, &c->c.bells[ch->bell], &ch->answers->asleep);
}

/* ---- parts of the uses ---- */

static double part_of(const struct cards *c, uint32_t layer, uint32_t expert)
{
    return c->part[(size_t)layer * c->c.geo->n_experts + expert];
}
static void add_load(struct cards *c, uint32_t i, double part)
{
    double *load = &c->spread.load[shape(c, i)->card];

    *load = *load + part > 0 ? *load + part : 0;
}

static void weigh_parts(struct cards *c)
{
    const struct geometry *g = c->c.geo;
    double all = 0;

    for (uint32_t l = 0; l < g->n_layers; l++) {
        const struct expert_layer *x = table_layer(c->c.tables, l);
        for (uint32_t n = 0; n < x->n_experts; n++) {
            double u = policy_uses(c->policy, l, n) + PRIOR * x->top_k / x->n_experts;
            c->part[(size_t)l * g->n_experts + n] = (float)u;
            all += u;
        }
    }
    for (size_t i = 0; i < n_experts(c); i++)
        c->part[i] = (float)(c->part[i] / all);
}

/* Parts, loads and targets anew. Until the next time a part is what it is now: an expert that comes or leaves
 * counts in the loads as it was weighed, or else those that were not used by the first few tokens would seem to be
 * free, and every card would be filled with them. */
static void weigh(struct cards *c)
{
    const struct geometry *g = c->c.geo;
    const struct card_plan *p = c->c.plan;
    uint32_t places[MAX_CARDS];
    struct spread_rates r;
    double bytes = 0, item = 0, most;

    c->weighed_at = policy_tokens(c->policy);
    weigh_parts(c);
    memset(c->spread.load, 0, sizeof c->spread.load);
    for (uint32_t l = 0; l < g->n_layers; l++) {
        const struct expert_layer *x = table_layer(c->c.tables, l);
        if (x->n_experts)
            bytes = x->top_k * (item = (double)slot_bytes(x));
        for (uint32_t n = 0; n < x->n_experts; n++)
            if (*slot_of(c, l, n) != PLACE_NONE)
                add_load(c, *slot_of(c, l, n), part_of(c, l, n));
    }
    c->c.rates(c->c.arg, &r);
    memcpy(c->uses, c->part, n_experts(c) * sizeof *c->uses);
    most = predict_hottest(c->uses, n_experts(c), g->n_slots);
    for (uint32_t k = 0; k < p->n_cards; k++) {
        places[k] = p->slot0[k + 1] - p->slot0[k];
        r.card[k].most = most * places[k] / g->n_slots;
    }
    spread_plan(&c->spread, &r, p->n_cards, places, c->c.all_in_ram, bytes, item);
}

/* ---- coming ---- */

/* Node k's rows of a matrix: where they lie in the slab and in the slot, to be copied either way. */
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
    if (o->kind == ORDER_UPLOAD)
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
    c->slot[i] = (struct slot){.state = SLOT_UPLOADING, .layer = layer, .expert = expert, .slab = slab,
                               .epoch = o.epoch, .order = o.number};
    c->n_free--;
    c->n_open[to->card]++;
    c->busy[c->n_busy++] = i;
    *slot_of(c, layer, expert) = i;
    policy_enter(c->policy, layer, expert, to->size);
    add_load(c, i, part_of(c, layer, expert));
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

/* Out of the host's table: the entry names the slab again, or nothing. */
static void out_of_table(struct cards *c, uint32_t i)
{
    struct slot *s = &c->slot[i];
    uint64_t epoch = 0;
    uint32_t slab = c->c.in_ram(c->c.arg, s->layer, s->expert, &epoch);

    atomic_store_explicit(table_entry(c->c.tables, c->c.geo, s->layer, s->expert),
                          slab == PLACE_NONE ? 0 : ENTRY(slab, epoch), memory_order_release);
    *slot_of(c, s->layer, s->expert) = PLACE_NONE;
    policy_leave(c->policy, s->layer, s->expert);
    add_load(c, i, -part_of(c, s->layer, s->expert));
    atomic_fetch_sub_explicit(&c->experts, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&c->held[shape(c, i)->card], 1, memory_order_relaxed);
}

/* For another expert. */
static void leave(struct cards *c, uint32_t i, uint32_t layer, uint32_t expert)
{
    struct slot *s = &c->slot[i];
    uint32_t card = shape(c, i)->card;

    out_of_table(c, i);
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

/* For another expert, by way of RAM if it has room and does not have it. */
static void begin_to_leave(struct cards *c, uint32_t i, uint32_t layer, uint32_t expert)
{
    const struct geometry *g = c->c.geo;
    const struct card_slot *from = shape(c, i);
    struct slot *s = &c->slot[i];
    struct order o = {.kind = ORDER_COPY_DOWN, .layer = s->layer, .expert = s->expert, .place = place(c, i),
                      .epoch = s->epoch};
    uint64_t epoch;

    if (c->c.in_ram(c->c.arg, s->layer, s->expert, &epoch) != PLACE_NONE ||
        (s->slab = c->c.room(c->c.arg, s->layer, s->expert)) == PLACE_NONE) {
        leave(c, i, layer, expert);
        return;
    }
    for (int m = 0; m < N_MATS; m++)
        for (uint32_t k = 0; k < g->n_nodes; k++)
            add_piece(c, &o, m, k, s->slab, from->off);
    s->state = SLOT_SINKING;
    s->next_layer = layer;
    s->next_expert = expert;
    s->order = o.number = c->next_order[from->card]++;
    c->busy[c->n_busy++] = i;
    c->n_open[from->card]++;
    publish(c, &o, from->card);
}

static int may_leave(void *arg, uint32_t layer, uint32_t expert)
{
    struct cards *c = arg;
    uint32_t i = *slot_of(c, layer, expert);

    return c->slot[i].state == SLOT_RESIDENT && c->n_open[shape(c, i)->card] < OPEN_MAX &&
           can_order(c, shape(c, i)->card);
}

/* ---- who goes ---- */

/* A free slot of the class, on the card that should have an expert with that part of the uses; if that card is
 * busy with others now, none and *later: where it lies lasts longer than an upload. */
static uint32_t free_slot(const struct cards *c, uint32_t size, double part, int *later)
{
    uint32_t first[MAX_CARDS], up = 0, can = 0;
    int card;

    *later = 0;
    for (uint32_t k = 0; k < c->c.plan->n_cards; k++)
        up |= (uint32_t)c->up[k] << k;
    if (spread_card(&c->spread, part, up) < 0) /* before all slots are looked through */
        return PLACE_NONE;
    for (uint32_t i = 0; can != up && i < c->c.geo->n_slots; i++) {
        uint32_t k = shape(c, i)->card;
        if ((up & ~can) >> k & 1 && c->slot[i].state == SLOT_FREE && shape(c, i)->size == size) {
            first[k] = i;
            can |= 1u << k;
        }
    }
    card = spread_card(&c->spread, part, can);
    *later = card >= 0 && (c->n_open[card] >= OPEN_MAX || !can_order(c, (uint32_t)card));
    return card < 0 || *later ? PLACE_NONE : first[card];
}

/* May the expert come in the other one's place: does the card keep its part? */
static int may_replace(const struct cards *c, const struct policy_answer *a, double part)
{
    uint32_t card = shape(c, *slot_of(c, a->layer, a->expert))->card;
    double less = part_of(c, a->layer, a->expert);

    return part <= less || c->spread.load[card] + part - less <= c->spread.target[card] * (1 + SPREAD_SLACK);
}

enum considered {
    STAYS,
    COMES, /* its upload began */
    LATER, /* a slot is free for it, but that card is busy */
};
/* An expert that lies in RAM and on no card. */
static enum considered consider(struct cards *c, uint32_t layer, uint32_t expert, uint32_t slab)
{
    uint64_t used = policy_last_use(c->policy, layer, expert);
    uint64_t *asked = &c->asked[(size_t)layer * c->c.geo->n_experts + expert];
    struct policy_answer a;
    double part;
    uint32_t i;
    int later;

    if (!c->n_free && used == *asked)
        return STAYS;
    *asked = used;
    a = policy_admit(c->policy, layer, expert, 0, may_leave, c);
    part = part_of(c, layer, expert);
    if (a.verdict == POLICY_REPLACE && !may_replace(c, &a, part))
        return STAYS;
    if (a.verdict == POLICY_REPLACE)
        begin_to_leave(c, *slot_of(c, a.layer, a.expert), layer, expert);
    else if (a.verdict != POLICY_FREE)
        return STAYS;
    i = free_slot(c, a.place, part, &later);
    if (i == PLACE_NONE)
        return later && a.verdict == POLICY_FREE ? LATER : STAYS;
    upload(c, i, layer, expert, slab);
    return COMES;
}

static int can_upload(const struct cards *c)
{
    for (uint32_t k = 0; k < c->c.plan->n_cards; k++)
        if (c->up[k] && c->n_open[k] < OPEN_MAX)
            return 1;
    return 0;
}

/* Will a card ever take uploads again? */
static int any_left(const struct cards *c)
{
    for (uint32_t k = 0; k < c->c.plan->n_cards; k++)
        if (life_turn(&c->c.life[k]) != LIFE_OUT)
            return 1;
    return 0;
}

/* At a warm start and after a death: the hottest, in their order. One that would have to wait for a card's
 * uploads is waited for: the next ones are less hot. */
static enum considered refill(struct cards *c)
{
    enum considered last = STAYS, now;

    for (; c->hot_at < c->n_hot && can_upload(c); c->hot_at++) {
        uint32_t layer = c->hot[c->hot_at] / c->c.geo->n_experts, expert = c->hot[c->hot_at] % c->c.geo->n_experts;
        uint64_t epoch;
        uint32_t slab = c->c.in_ram(c->c.arg, layer, expert, &epoch);
        now = slab != PLACE_NONE && *slot_of(c, layer, expert) == PLACE_NONE ? consider(c, layer, expert, slab) : STAYS;
        if (now == LATER)
            return last == COMES ? COMES : LATER;
        last = now == COMES ? COMES : last;
    }
    return last;
}

/* The same expert number of every layer, then the next: so that a pool that holds few has some of all
 * layers. */
static int scan(struct cards *c)
{
    const struct geometry *g = c->c.geo;
    enum considered now = refill(c);
    int moved = now == COMES;

    if (now == LATER) /* its card's next answer wakes us */
        return 0;
    for (uint32_t n = 0; c->hot_at == c->n_hot && n < SCAN && c->fresh && can_upload(c); n++, c->fresh--) {
        uint32_t layer = (uint32_t)(c->at % g->n_layers), expert = (uint32_t)(c->at / g->n_layers), slab;
        uint64_t epoch;
        c->at = (c->at + 1) % n_experts(c);
        if (expert >= table_layer(c->c.tables, layer)->n_experts || *slot_of(c, layer, expert) != PLACE_NONE)
            continue;
        slab = c->c.in_ram(c->c.arg, layer, expert, &epoch);
        now = slab != PLACE_NONE ? consider(c, layer, expert, slab) : STAYS;
        moved |= now == COMES;
    }
    return moved || (c->fresh && can_upload(c));
}

/* ---- death ---- */

/* With places for the slots of the cards that are not left out. */
static int open_policy(const struct cards *c, struct policy **out, struct err *e)
{
    struct policy_config pc = {.kind = POLICY_HEAT, /* the others move at every use */
                               .n_layers = c->c.geo->n_layers,
                               .n_experts = c->c.geo->n_experts,
                               .n_sizes = c->c.plan->pools.n,
                               .size_of = c->c.size_of,
                               .margin = POLICY_MARGIN,
                               .moves = MOVES};

    for (uint32_t k = 0; k < c->c.plan->n_cards; k++)
        for (uint32_t s = 0; s < pc.n_sizes && life_turn(&c->c.life[k]) != LIFE_OUT; s++)
            pc.places[s] += c->c.plan->places[k][s];
    return policy_open(&pc, out, e);
}

/* An upload that nobody waits for any more. */
static void give_up(struct cards *c, uint32_t i)
{
    struct slot *s = &c->slot[i];

    *slot_of(c, s->layer, s->expert) = PLACE_NONE;
    policy_leave(c->policy, s->layer, s->expert);
    c->c.hold(c->c.arg, s->slab, -1);
    c->n_open[shape(c, i)->card]--;
    set_free(c, i);
}

/* The worker is reaped: nobody reads or writes the card's slots, whatever still names them. */
static void empty_slots(struct cards *c, uint32_t card)
{
    uint32_t kept = 0;

    for (uint32_t n = 0; n < c->n_busy; n++)
        if (shape(c, c->busy[n])->card != card)
            c->busy[kept++] = c->busy[n];
    c->n_busy = kept;
    for (uint32_t i = c->c.plan->slot0[card]; i < c->c.plan->slot0[card + 1]; i++) {
        enum slot_state was = c->slot[i].state;
        if (was == SLOT_UPLOADING)
            give_up(c, i);
        if (was == SLOT_SINKING) {
            c->c.landed(c->c.arg, c->slot[i].slab, 0);
            c->n_open[card]--;
        }
        if (was == SLOT_RESIDENT || was == SLOT_SINKING)
            out_of_table(c, i);
        atomic_store_explicit(&table_slot(c->c.tables, i)->header, 0, memory_order_release);
        if (was != SLOT_UPLOADING && was != SLOT_FREE)
            set_free(c, i);
    }
    orders_bury(c->c.geo, c->c.card[card].answers, c->next_order[card]);
}

/* The counters go to those of the card's former workers. */
static void add_past(struct card_past *p, struct outbox_counters *n)
{
    p->calls += GET(n->calls);
    p->items += GET(n->items);
    p->amended += GET(n->amended);
    p->declined += GET(n->declined);
    p->rows += GET(n->rows);
    p->weight_bytes += GET(n->weight_bytes);
    p->work_ns += GET(n->work_ns);
    p->sleeps += GET(n->sleeps);
    p->net_finds += GET(n->net_finds);
    memset(n, 0, sizeof *n); /* its writer is reaped */
}

/* What the worker's open items become, for the line: "; 3 unfinished items, 2 to CPU workers, ..." */
static void tell_lost(struct cards *c, uint32_t outbox, char *text, size_t n)
{
    uint32_t where[3] = {0}, max = CALLS_IN_FLIGHT * c->c.geo->max_items, k;
    struct lost *lost = malloc(max * sizeof *lost);
    uint64_t epoch;

    k = lost ? steward_lost(c->c.steward, outbox, lost, max) : 0;
    for (uint32_t i = 0; i < k; i++) {
        int ram = c->c.in_ram(c->c.arg, lost[i].layer, lost[i].expert, &epoch) != PLACE_NONE;
        where[ram ? 0 : cards_place(c, lost[i].layer, lost[i].expert, &epoch) != PLACE_NONE ? 1 : 2]++;
    }
    free(lost);
    ADD(c->lost_items, k);
    if (!k)
        snprintf(text, n, "no item was unfinished");
    else
        snprintf(text, n, "%u unfinished item%s: %u to CPU workers, %u to other cards, %u by way of the disk", k,
                 k > 1 ? "s" : "", where[0], where[1], where[2]);
}

/* The policy's places are those of the cards that are left. */
static void forget_places(struct cards *c)
{
    float *uses = malloc(n_experts(c) * sizeof *uses);
    struct policy *p = NULL;
    struct err e = {0};
    double tokens;

    if (uses && any_left(c) && !open_policy(c, &p, &e)) {
        policy_export(c->policy, uses, &tokens);
        policy_import(p, uses, tokens);
        for (uint32_t i = 0; i < c->c.geo->n_slots; i++)
            if (c->slot[i].state == SLOT_UPLOADING || c->slot[i].state == SLOT_RESIDENT ||
                c->slot[i].state == SLOT_SINKING)
                policy_enter(p, c->slot[i].layer, c->slot[i].expert, shape(c, i)->size);
        policy_close(c->policy);
        c->policy = p;
    }
    free(uses);
    for (uint32_t i = 0; i < n_experts(c); i++)
        c->asked[i] = 0;
}

/* How far the executor has come: calls published, and steps begun. */
static uint64_t passed(const struct cards *c)
{
    return atomic_load_explicit(&c->c.calls->head, memory_order_acquire) +
           (c->c.step ? atomic_load_explicit(c->c.step, memory_order_acquire) : 0);
}

/* One line, written at once: other threads write lines, too. lost: what it left; wait: until the next, or -1. */
static void tell_death(const struct life *l, int pid, const char *lost, int64_t wait)
{
    char who[24] = "", next[100];

    if (pid)
        snprintf(who, sizeof who, " (pid %d)", pid);
    if (wait >= 0)
        snprintf(next, sizeof next, "another starts in %.1f s", (double)wait * 1e-9);
    else if (l->number == CARD_LIVES)
        snprintf(next, sizeof next, "no numbers are left for another, the run goes on without the card");
    else
        snprintf(next, sizeof next, "it failed %u times within a minute, the run goes on without the card", LIFE_FAILURES);
    fprintf(stderr, "conclave: %s%s%s%s; %s; %s\n", l->name, who, strchr(l->how, ':') || !pid ? ": " : " ", l->how, lost,
            next);
}

static void bury(struct cards *c, uint32_t k)
{
    struct life *l = &c->c.life[k];
    uint32_t outbox = card_outbox(k, l->number);
    int was_up = cards_worker(c, k) == outbox, pid = l->pid;
    int64_t wait = life_failed(l, now_ns());
    char text[160] = "it was not ready yet";
    struct err e = {0};

    c->up[k] = 0;
    ADD(c->deaths, 1);
    if (was_up) { /* the number first, then the look at the calls: who publishes looks the other way round */
        atomic_store_explicit(table_card(c->c.tables, k), 0, memory_order_release);
        atomic_thread_fence(memory_order_seq_cst);
        c->lost_at[k][l->number % 2] = passed(c);
        steward_worker(c->c.steward, outbox, c->c.box[outbox], WORKER_REAPED);
        empty_slots(c, k);
        if (steward_follow(c->c.steward, now_ns(), &e) < 0)
            watch_fatal(*c->c.watch, "steward: %s", e.msg);
        add_past(&c->past[k], &c->c.box[outbox]->count);
        tell_lost(c, outbox, text, sizeof text);
    }
    l->number++;
    if (l->number == CARD_LIVES)
        wait = -1;
    tell_death(l, pid, text, wait); /* before the one whose trunk it had says who goes on */
    life_pass(l, wait < 0 ? LIFE_OUT : LIFE_EMPTIED);
    l->not_before = now_ns() + (uint64_t)wait;
    if (wait >= 0)
        return;
    ADD(c->out, 1);
    forget_places(c);
}

/* The next worker writes where the last but one did: nobody looks there any more, neither at a call that is open nor
 * at one that was being made when the number left the tables. When the executor has passed on twice since, it has
 * looked at the tables again; the trunk's own card has none while it is down. */
static int may_start(struct cards *c, uint32_t k)
{
    uint32_t number = c->c.life[k].number;

    return number < 2 || ((c->c.trunk == (int)k || passed(c) >= c->lost_at[k][number % 2] + 2) &&
                          !steward_outbox_named(c->c.steward, card_outbox(k, number - 2)));
}

static void hottest_first(struct cards *c)
{
    if (!c->hot)
        c->hot = malloc(n_experts(c) * sizeof *c->hot);
    c->hot_at = 0;
    c->n_hot = c->hot ? (uint32_t)policy_hottest(c->policy, c->hot) : 0;
}

static void take_up(struct cards *c, uint32_t k)
{
    struct life *l = &c->c.life[k];
    uint32_t outbox = card_outbox(k, l->number), ready = LIFE_READY;

    steward_worker(c->c.steward, outbox, c->c.box[outbox], WORKER_LIVE);
    atomic_store_explicit(table_card(c->c.tables, k), outbox, memory_order_release);
    fprintf(stderr, "conclave: %s: pid %d goes on with empty slots\n", l->name, l->pid);
    ADD(c->successors, 1);
    atomic_store(&l->last_up, l->number);
    if (!atomic_compare_exchange_strong(&l->turn, &ready, LIFE_UP))
        return; /* it has died meanwhile */
    c->up[k] = 1;
    hottest_first(c);
    c->fresh = n_experts(c);
}

int cards_lives(struct cards *c)
{
    int moved = 0;

    for (uint32_t k = 0; c && k < c->c.plan->n_cards; k++) {
        struct life *l = &c->c.life[k];
        switch (life_turn(l)) {
        case LIFE_GONE:
            bury(c, k);
            moved = 1;
            break;
        case LIFE_EMPTIED:
            if (!may_start(c, k))
                break;
            outbox_empty(c->c.geo, c->c.box[card_outbox(k, l->number)]);
            life_pass(l, LIFE_WAITS);
            watch_wake(*c->c.watch);
            break;
        case LIFE_READY:
            take_up(c, k);
            moved = 1;
            break;
        default:
            break;
        }
    }
    return moved;
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
    if (!answer)
        return 0;
    if (answer < 0) { /* the worker has said why, and ends: nothing more is sent to it */
        c->up[card] = 0;
        return 0;
    }
    if (s->state == SLOT_SINKING)
        return can_order(c, card);
    if (s->state == SLOT_UPLOADING || unhead(c, i))
        return 1;
    s->state = SLOT_LEAVING;
    return 0;
}

/* It lies in RAM as well now: it leaves as where RAM has everything. */
static void sunk(struct cards *c, uint32_t i)
{
    struct slot was = c->slot[i];

    c->c.landed(c->c.arg, was.slab, 1);
    c->n_open[shape(c, i)->card]--;
    ADD(c->down, 1);
    c->slot[i].state = SLOT_RESIDENT;
    leave(c, i, was.next_layer, was.next_expert);
    if (c->slot[i].state != SLOT_FREE)
        return;
    c->slot[i].layer = was.next_layer;
    c->slot[i].expert = was.next_expert;
    come_next(c, i);
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
        } else if (c->slot[i].state == SLOT_SINKING) {
            sunk(c, i);
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
        begin_to_leave(c, i, PLACE_NONE, 0);
        moved = 1;
    }
    return moved;
}

/* Of a card that has more than its part: the hottest that are not too much go back to the nodes. */
static int shed(struct cards *c)
{
    const struct card_plan *p = c->c.plan;
    int moved = 0;

    for (uint32_t k = 0; k < p->n_cards; k++)
        for (uint32_t n = 0; n < SHED && spread_excess(&c->spread, k) > 0; n++) {
            uint32_t best = PLACE_NONE;
            double most = 0, excess = spread_excess(&c->spread, k);
            for (uint32_t i = p->slot0[k]; i < p->slot0[k + 1]; i++) {
                double part = c->slot[i].state == SLOT_RESIDENT ? part_of(c, c->slot[i].layer, c->slot[i].expert) : 0;
                if (part <= most || part > excess)
                    continue;
                most = part;
                best = i;
            }
            if (best == PLACE_NONE || !can_order(c, k))
                break;
            begin_to_leave(c, best, PLACE_NONE, 0);
            moved = 1;
        }
    return moved;
}

int cards_round(struct cards *c, int news)
{
    int moved = advance(c);

    if (policy_tokens(c->policy) >= c->weighed_at + WEIGH) {
        weigh(c);
        moved |= shed(c);
    }

    if (c->c.churn_us)
        moved |= churn(c);
    if (moved || news)
        c->fresh = n_experts(c);
    moved |= scan(c);
    atomic_store_explicit(&c->filling, c->n_busy || (c->fresh && any_left(c)), memory_order_release);
    return moved;
}

int cards_look(const struct cards *c)
{
    for (uint32_t k = 0; k < c->c.plan->n_cards; k++)
        if (life_turn(&c->c.life[k]) == LIFE_GONE || life_turn(&c->c.life[k]) == LIFE_READY)
            return 1;
    for (uint32_t n = 0; n < c->n_busy; n++) {
        const struct slot *s = &c->slot[c->busy[n]];
        if (s->state != SLOT_LEAVING && c->up[shape(c, c->busy[n])->card] &&
            order_answer(c->c.geo, c->c.card[shape(c, c->busy[n])->card].answers, s->order))
            return 1;
    }
    return 0;
}

uint32_t cards_place(const struct cards *c, uint32_t layer, uint32_t expert, uint64_t *epoch)
{
    uint32_t i = c ? *slot_of(c, layer, expert) : PLACE_NONE;

    if (i == PLACE_NONE || (c->slot[i].state != SLOT_RESIDENT && c->slot[i].state != SLOT_SINKING))
        return PLACE_NONE;
    *epoch = c->slot[i].epoch;
    return place(c, i);
}

uint32_t cards_worker(const struct cards *c, uint32_t card)
{
    return atomic_load_explicit(table_card(c->c.tables, card), memory_order_relaxed);
}
uint32_t cards_outbox(const struct cards *c, uint32_t place)
{
    return cards_worker(c, shape(c, place - c->c.geo->n_slabs)->card);
}

void cards_warm(struct cards *c)
{
    weigh(c);
    if (c->c.all_in_ram)
        hottest_first(c);
}

struct policy *cards_policy(struct cards *c)
{
    return c->policy;
}

/* ---- life ---- */

int cards_open(const struct cards_config *config, struct cards **out, struct err *e)
{
    const struct geometry *g = config->geo;
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
        c->up[k] = 1;
        atomic_store_explicit(table_card(config->tables, k), config->card[k].outbox, memory_order_release);
    }
    c->part = calloc(n_experts(c), sizeof *c->part);
    c->uses = calloc(n_experts(c), sizeof *c->uses);
    if (!c->part || !c->uses) {
        err_set(e, rc, "no memory for the uses of %zu experts", n_experts(c));
        goto failed;
    }
    c->n_free = g->n_slots;
    c->fresh = n_experts(c);
    c->filling = 1;
    rc = open_policy(c, &c->policy, e);
    if (rc)
        goto failed;
    weigh(c);
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
    free(c->part);
    free(c->uses);
    free(c->hot);
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
    s->down = GET(c->down);
    s->filling = atomic_load_explicit(&c->filling, memory_order_acquire);
    for (uint32_t k = 0; k < c->c.plan->n_cards; k++) {
        s->held[k] = GET(c->held[k]);
        s->came[k] = GET(c->came[k]);
        s->past[k] = c->past[k];
    }
    s->deaths = GET(c->deaths);
    s->successors = GET(c->successors);
    s->out = GET(c->out);
    s->lost_items = GET(c->lost_items);
}
