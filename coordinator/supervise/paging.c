/* Experts come and go here. "Leaving a place" (docs/DESIGN.md section 4) is the order of the lines of
 * leave(), vacate() and arrive(); what must be waited for is the steward's to say. */
#define _GNU_SOURCE
#include "coordinator/supervise/paging.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_NEEDS 64 /* looked at in one round; the rest comes in the next */
#define RATE_NS 50e6 /* of work, before a worker's rate is believed */
#define STUCK_MS 1   /* between looks at stamps that ring nobody here, after the rounds */
#define PLACE_ROWS (PLACE_NONE - 1) /* an order's, of rows: no slab's */
#define WARM_OPEN 32 /* warm reads ordered at a time: enough for the disk, and orders are left */

enum slab_state {
    SLAB_FREE,
    SLAB_LEAVING, /* out of the table, and a giving that has not been stamped names it */
    SLAB_READING,
    SLAB_LANDING, /* a card's worker copies an expert into it that is about to leave there */
    SLAB_RESIDENT,
};
enum ahead_state { /* of a slab whose expert was read before a call named it */
    AHEAD_NO,
    AHEAD_READ,    /* no call has named it yet */
    AHEAD_DROPPED, /* the read was cancelled, the answer is to come */
    AHEAD_RAISED,  /* a call has come to wait for it */
};
/* An expert is the policy's or not; the slab of one that is not, of one that left last or was not
 * admitted, is loose: what it holds is at hand until another expert is read into it. */
struct slab {
    enum slab_state state;
    uint32_t layer, expert; /* READING, RESIDENT: who */
    uint64_t epoch;         /* RESIDENT */
    uint64_t order;         /* READING: the pager's */
    uint64_t last_use;      /* loose: as the policy knew it when it was decided about */
    uint32_t next, prev;    /* FREE or loose: of its list */
    uint8_t class, warm, raised; /* READING: by heat; and now demanded */
    uint8_t ahead;          /* enum ahead_state */
    uint8_t held;           /* uploads from it: stays as it is */
};

struct counters { /* written by the thread, read by any */
    _Atomic uint64_t ahead_used, ahead_late, ahead_wasted, ahead_dropped;
    _Atomic uint64_t reads, moves, warm_reads, warm_bytes, warm_total, lost_uses, warm_left, warm_raised, again;
    _Atomic uint32_t most_open, residents;
};

struct paging {
    struct paging_config c;
    struct steward *steward;
    struct policy *policy; /* NULL: every expert is resident */
    struct cards *cards;   /* NULL: none */
    struct slab *slab;     /* n_slabs, then the heads of the lists: free and loose ones by size class */
    uint32_t *place_of;    /* by layer * n_experts + expert: its slab, being read or resident, or PLACE_NONE */
    uint8_t *class_of;     /* by layer */
    uint8_t *damaged;      /* by layer * n_experts + expert: its block in the pack is; said, and not read again */
    uint64_t next_order, next_epoch;
    uint32_t *reading;     /* by order number modulo the ring: its slab until the answer is taken */
    uint32_t *busy, n_busy; /* slabs leaving or being read */
    uint32_t n_demanded, n_warm, n_ahead; /* of these, reads by what they are for */
    uint64_t ahead_seen;   /* the trunk's newest list, what it named, how far it was ordered */
    uint32_t ahead_layer, ahead_at, ahead_end, foreseen[AHEAD_MOST];
    uint32_t *warm, warm_at, warm_end; /* layer * n_experts + expert: to be read, the hottest first */
    uint64_t row_order[LOOKUP_ORDERS]; /* of rows of tables, open; 0: none */
    int stuck;             /* something waits for stamps that ring nobody here: look again soon */
    size_t n_needs;
    struct need need[MAX_NEEDS];
    uint64_t kept;         /* uses that the heat keeper has */
    struct counters count;
    pthread_t thread;
    _Atomic int stop;
};

static size_t expert_at(const struct paging *p, uint32_t layer, uint32_t expert)
{
    return (size_t)layer * p->c.geo->n_experts + expert;
}
static uint32_t *place_of(const struct paging *p, uint32_t layer, uint32_t expert)
{
    return &p->place_of[expert_at(p, layer, expert)];
}
static void add(_Atomic uint64_t *count, uint64_t n)
{
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + n, memory_order_relaxed);
}

/* ---- lists ---- */

static uint32_t free_list(const struct paging *p, uint32_t class)
{
    return p->c.geo->n_slabs + class;
}
static uint32_t loose_list(const struct paging *p, uint32_t class)
{
    return p->c.geo->n_slabs + POLICY_SIZES + class;
}

static void unlink_slab(struct paging *p, uint32_t i)
{
    struct slab *s = &p->slab[i];

    p->slab[s->prev].next = s->next;
    p->slab[s->next].prev = s->prev;
}
/* At the end: the list's first leaves first. */
static void link_last(struct paging *p, uint32_t list, uint32_t i)
{
    struct slab *s = &p->slab[i];

    s->next = list;
    s->prev = p->slab[list].prev;
    p->slab[s->prev].next = i;
    p->slab[list].prev = i;
}
static void link_first(struct paging *p, uint32_t list, uint32_t i)
{
    struct slab *s = &p->slab[i];

    s->prev = list;
    s->next = p->slab[list].next;
    p->slab[s->next].prev = i;
    p->slab[list].next = i;
}
static int on_card(const struct paging *p, uint32_t layer, uint32_t expert)
{
    uint64_t epoch;

    return cards_place(p->cards, layer, expert, &epoch) != PLACE_NONE;
}

static void set_free(struct paging *p, uint32_t i)
{
    p->slab[i].state = SLAB_FREE;
    link_last(p, free_list(p, p->slab[i].class), i);
}
static void set_loose(struct paging *p, uint32_t i)
{
    struct slab *s = &p->slab[i];

    s->last_use = policy_last_use(p->policy, s->layer, s->expert);
    link_last(p, loose_list(p, s->class), i);
}

/* ---- coming and going ---- */

static uint32_t *reading(struct paging *p, uint64_t order)
{
    return &p->reading[order & (p->c.geo->order_slots - 1)];
}

/* May one more order go out: its slot's former answer was given and taken? */
static int room(struct paging *p)
{
    return *reading(p, p->next_order) == PLACE_NONE && order_room(p->c.geo, p->c.pager, p->next_order);
}

static void read_into(struct paging *p, uint32_t i, uint32_t layer, uint32_t expert, enum order_prio prio)
{
    struct slab *s = &p->slab[i];
    struct order o = {.number = p->next_order, .prio = prio};

    pieces_expert(p->c.pieces, layer, expert, i, &o);
    if (p->damaged[expert_at(p, layer, expert)] && pieces_expert_again(p->c.pieces, layer, expert, i, &o))
        add(&p->count.again, 1);
    if (prio == PRIO_PREFETCH) /* who calls for it reads it again */
        o.flags |= ORDER_SOFT;
    s->state = SLAB_READING;
    s->layer = layer;
    s->expert = expert;
    s->warm = prio == PRIO_WARM;
    s->raised = 0;
    s->ahead = prio == PRIO_PREFETCH ? AHEAD_READ : AHEAD_NO;
    s->order = p->next_order++;
    *reading(p, s->order) = i;
    *place_of(p, layer, expert) = i;
    p->busy[p->n_busy++] = i;
    if (s->warm) {
        p->n_warm++;
    } else if (s->ahead) {
        p->n_ahead++;
    } else {
        add(&p->count.reads, 1);
        if (++p->n_demanded > atomic_load_explicit(&p->count.most_open, memory_order_relaxed))
            atomic_store_explicit(&p->count.most_open, p->n_demanded, memory_order_relaxed);
    }
    order_publish(p->c.geo, p->c.orders, &o, &p->c.bells[p->c.pager_outbox], &p->c.pager->asleep);
}

/* The entry first (if it names this slab and not a card's slot), then the header on every node, for which nodes that sleep on a stage stamp are woken;
 * steward_place_named makes the fence. */
static void leave(struct paging *p, uint32_t i)
{
    struct slab *s = &p->slab[i];

    if (!on_card(p, s->layer, s->expert))
        atomic_store_explicit(table_entry(p->c.tables, p->c.geo, s->layer, s->expert), 0, memory_order_release);
    for (uint32_t k = 0; k < p->c.geo->n_nodes; k++)
        atomic_store_explicit(table_header(p->c.tables, p->c.geo, k, i), 0, memory_order_release);
    if (p->c.geo->n_nodes > 1)
        steward_ring_workers(p->steward);
    *place_of(p, s->layer, s->expert) = PLACE_NONE;
    if (s->ahead == AHEAD_READ)
        add(&p->count.ahead_wasted, 1);
    s->ahead = AHEAD_NO;
}

/* The read of a slab is over. */
static void read_ended(struct paging *p, const struct slab *s)
{
    int low = s->ahead == AHEAD_READ || s->ahead == AHEAD_DROPPED;

    *(s->warm ? &p->n_warm : low ? &p->n_ahead : &p->n_demanded) -= 1;
    *reading(p, s->order) = PLACE_NONE;
}

/* The bytes are there: header on every node, then the entry. */
static void arrive(struct paging *p, uint32_t i)
{
    struct slab *s = &p->slab[i];

    read_ended(p, s);
    s->ahead = s->ahead == AHEAD_READ || s->ahead == AHEAD_DROPPED ? AHEAD_READ : AHEAD_NO;
    s->state = SLAB_RESIDENT;
    s->epoch = p->next_epoch++;
    for (uint32_t k = 0; k < p->c.geo->n_nodes; k++)
        atomic_store_explicit(table_header(p->c.tables, p->c.geo, k, i), s->epoch, memory_order_release);
    atomic_store_explicit(table_entry(p->c.tables, p->c.geo, s->layer, s->expert), ENTRY(i, s->epoch),
                          memory_order_release);
    if (!policy_resident(p->policy, s->layer, s->expert))
        set_loose(p, i);
}

static int named(struct paging *p, uint32_t i)
{
    struct err e = {0};
    int rc = steward_place_named(p->steward, i, now_ns(), &e);

    if (rc < 0)
        watch_fatal(*p->c.watch, "steward: %s", e.msg);
    return rc;
}

/* Takes what lies in a slab that is in no list out of the tables. 0: it can be overwritten; else a call
 * was published between the look and the mark, and the slab is free when its stamps are there. */
static int vacate(struct paging *p, uint32_t i)
{
    leave(p, i);
    if (!named(p, i))
        return 0;
    p->slab[i].state = SLAB_LEAVING;
    p->busy[p->n_busy++] = i;
    return 1;
}

/* ---- who stays ---- */

static void admit(struct paging *p, uint32_t layer, uint32_t expert, uint32_t class)
{
    policy_enter(p->policy, layer, expert, class);
    atomic_fetch_add_explicit(&p->count.residents, 1, memory_order_relaxed);
}

/* No longer the policy's. What is being read becomes loose when it arrives. */
static void dismiss(struct paging *p, uint32_t layer, uint32_t expert)
{
    uint32_t i = *place_of(p, layer, expert);

    policy_leave(p->policy, layer, expert);
    atomic_fetch_sub_explicit(&p->count.residents, 1, memory_order_relaxed);
    if (p->slab[i].state == SLAB_RESIDENT)
        set_loose(p, i);
}

/* The policy's answer for an expert that has a slab of its own and is in no list: two names change, nothing
 * is read. Returns whether it is the policy's now. */
static int admit_slab(struct paging *p, uint32_t i)
{
    struct slab *s = &p->slab[i];
    struct policy_answer a = policy_admit(p->policy, s->layer, s->expert, 0, NULL, NULL);

    if ((a.verdict != POLICY_FREE && a.verdict != POLICY_REPLACE) || a.place != s->class)
        return 0;
    if (a.verdict == POLICY_REPLACE)
        dismiss(p, a.layer, a.expert);
    admit(p, s->layer, s->expert, s->class);
    add(&p->count.moves, 1);
    return 1;
}

/* Loose experts that were used again and are worth a place now. */
static void promote(struct paging *p)
{
    for (uint32_t class = 0; class < p->c.slabs->pools.n; class++) {
        uint32_t list = loose_list(p, class), last = p->slab[list].prev, i = p->slab[list].next, next;
        for (int more = i != list; more; i = next) {
            struct slab *s = &p->slab[i];
            uint64_t used = policy_last_use(p->policy, s->layer, s->expert);
            more = i != last;
            next = s->next;
            if (used == s->last_use || on_card(p, s->layer, s->expert))
                continue;
            if (s->ahead)
                add(&p->count.ahead_used, 1);
            s->ahead = AHEAD_NO;
            unlink_slab(p, i);
            if (!admit_slab(p, i))
                set_loose(p, i);
        }
    }
}

/* A slab of this class to read into; PLACE_NONE: all others are being read or named. */
static uint32_t take_spare(struct paging *p, uint32_t class)
{
    uint32_t list = free_list(p, class), i = p->slab[list].next, next;

    if (i != list) {
        unlink_slab(p, i);
        return i;
    }
    list = loose_list(p, class);
    for (i = p->slab[list].next; i != list; i = next) {
        next = p->slab[i].next;
        if (p->slab[i].held || named(p, i))
            continue;
        unlink_slab(p, i);
        if (!vacate(p, i))
            return i;
    }
    return PLACE_NONE;
}

static int leaves_now(void *arg, uint32_t layer, uint32_t expert)
{
    struct paging *p = arg;
    uint32_t i = *place_of(p, layer, expert);

    return p->slab[i].state == SLAB_RESIDENT && !p->slab[i].held && !named(p, i);
}

/* The slab of one of the policy's that may go this moment. */
static uint32_t displace(struct paging *p, uint32_t layer, uint32_t expert, int must,
                         struct policy_answer *a)
{
    uint32_t i;

    *a = policy_admit(p->policy, layer, expert, must, leaves_now, p);
    if (a->verdict != POLICY_REPLACE)
        return PLACE_NONE;
    i = *place_of(p, a->layer, a->expert);
    dismiss(p, a->layer, a->expert);
    unlink_slab(p, i);
    return vacate(p, i) ? PLACE_NONE : i;
}

/* Sends an expert on its way, if there is a slab to be had now. The policy says whether it takes a
 * place; the slab is a spare one in any case where there is one. Returns whether it went. */
static int fetch(struct paging *p, uint32_t layer, uint32_t expert)
{
    const struct slab_plan *plan = p->c.slabs;
    uint32_t own = p->class_of[layer], i = PLACE_NONE;
    int must = !plan->spare[plan->pools.n - 1]; /* one slab in all */
    struct policy_answer a;

    if (!room(p))
        return 0;
    a = policy_admit(p->policy, layer, expert, must, NULL, NULL);
    if (a.verdict == POLICY_FREE || a.verdict == POLICY_REPLACE) {
        i = take_spare(p, a.place);
        if (i != PLACE_NONE && a.verdict == POLICY_REPLACE)
            dismiss(p, a.layer, a.expert);
        else if (i == PLACE_NONE && a.verdict == POLICY_REPLACE)
            i = displace(p, layer, expert, must, &a);
        if (i != PLACE_NONE) {
            admit(p, layer, expert, a.place);
            add(&p->count.moves, 1);
        }
    } else {
        for (uint32_t s = own; s < plan->pools.n && i == PLACE_NONE; s++)
            i = take_spare(p, s);
    }
    if (i == PLACE_NONE) {
        p->stuck = 1; /* every slab is named or being read; stamps and answers will free one */
        return 0;
    }
    read_into(p, i, layer, expert, PRIO_DEMAND);
    return 1;
}

/* ---- reading ahead ---- */

/* About the read of a slab. Needs room. */
static void order_about(struct paging *p, const struct slab *s, enum order_kind kind)
{
    struct order o = {.number = p->next_order++, .kind = kind, .prio = PRIO_DEMAND, .layer = s->layer,
                      .expert = s->expert, .target = s->order};

    order_publish(p->c.geo, p->c.orders, &o, &p->c.bells[p->c.pager_outbox], &p->c.pager->asleep);
}

/* Somebody waits for what is being read by heat, or ahead: from now on as if it had been demanded. An order
 * that raises is answered at once, and nobody looks at that answer. Returns whether the books changed. */
static int raise_read(struct paging *p, uint32_t i)
{
    struct slab *s = &p->slab[i];

    if (s->state != SLAB_READING || !room(p))
        return 0;
    if (s->warm && !s->raised) {
        order_about(p, s, ORDER_RAISE);
        s->raised = 1;
        add(&p->count.warm_raised, 1);
        return 0;
    }
    if (s->ahead != AHEAD_READ)
        return 0;
    order_about(p, s, ORDER_RAISE);
    s->ahead = AHEAD_RAISED;
    p->n_ahead--;
    p->n_demanded++;
    add(&p->count.ahead_late, 1);
    admit_slab(p, i);
    return 1;
}

/* Reads for a layer that has been called meanwhile, or that were foreseen before that. */
static void drop_reads(struct paging *p, uint32_t layer)
{
    for (uint32_t n = 0; n < p->n_busy && p->n_ahead; n++) {
        struct slab *s = &p->slab[p->busy[n]];
        if (s->state != SLAB_READING || s->ahead != AHEAD_READ || s->layer == layer || !room(p))
            continue;
        order_about(p, s, ORDER_CANCEL);
        s->ahead = AHEAD_DROPPED;
    }
}

/* A read ahead was cancelled or failed: a call that wants the expert orders its own. */
static void give_up(struct paging *p, uint32_t i)
{
    struct slab *s = &p->slab[i];

    read_ended(p, s);
    add(&p->count.ahead_dropped, 1);
    *place_of(p, s->layer, s->expert) = PLACE_NONE;
    if (policy_resident(p->policy, s->layer, s->expert)) {
        policy_leave(p->policy, s->layer, s->expert);
        atomic_fetch_sub_explicit(&p->count.residents, 1, memory_order_relaxed);
    }
    s->ahead = AHEAD_NO;
    set_free(p, i);
}

/* What the trunk has named last, into spare slabs; about half of them are left to calls. */
static int read_ahead(struct paging *p)
{
    uint32_t class, n, most, moved = 0;

    if (!p->policy || !p->c.ahead)
        return 0;
    if (ahead_take(p->c.ahead, &p->ahead_seen, &p->ahead_layer, p->foreseen, &n)) {
        p->ahead_at = 0;
        p->ahead_end = n;
        drop_reads(p, p->ahead_layer);
    }
    class = p->class_of[p->ahead_layer];
    most = p->c.slabs->spare[class] < 2 ? 0 : (p->c.slabs->spare[class] + 1) / 2;
    for (; p->ahead_at < p->ahead_end; moved = 1) {
        uint32_t expert = p->foreseen[p->ahead_at], i;
        if (p->n_ahead >= most || !room(p))
            break;
        p->ahead_at++;
        if (*place_of(p, p->ahead_layer, expert) != PLACE_NONE)
            continue;
        i = take_spare(p, class);
        if (i == PLACE_NONE)
            break;
        read_into(p, i, p->ahead_layer, expert, PRIO_PREFETCH);
    }
    return (int)moved;
}

/* The hottest of earlier runs, into places that nobody has taken yet. */
static int warm_up(struct paging *p)
{
    int moved = 0;

    while (p->warm_at < p->warm_end && p->n_warm < WARM_OPEN && room(p)) {
        uint32_t layer = p->warm[p->warm_at] / p->c.geo->n_experts,
                 expert = p->warm[p->warm_at] % p->c.geo->n_experts, list, i;
        struct policy_answer a;
        p->warm_at++;
        moved = 1;
        if (*place_of(p, layer, expert) != PLACE_NONE)
            continue;
        a = policy_admit(p->policy, layer, expert, 0, NULL, NULL);
        list = free_list(p, a.place);
        i = p->slab[list].next;
        if (a.verdict != POLICY_FREE || i == list)
            continue;
        unlink_slab(p, i);
        admit(p, layer, expert, a.place);
        read_into(p, i, layer, expert, PRIO_WARM);
    }
    if (moved)
        atomic_store_explicit(&p->count.warm_left, p->warm_end - p->warm_at + p->n_warm, memory_order_release);
    return moved;
}

/* ---- rows of tables ---- */

static void row_answer(struct paging *p, uint32_t which, int answer)
{
    if (answer < 0) { /* as of an expert: the pager's line first */
        sleep(1);
        watch_fatal(*p->c.watch, "pager: rows of a table cannot be read");
    }
    lookup_came(p->c.lookup, which);
    *reading(p, p->row_order[which]) = PLACE_NONE;
    p->row_order[which] = 0;
}

/* Rows that came, rows that are wanted. Returns whether anything moved. */
static int look_up(struct paging *p)
{
    struct order o;
    uint32_t which;
    int moved = 0;

    for (uint32_t k = 0; p->c.lookup && k < LOOKUP_ORDERS; k++) {
        int answer = p->row_order[k] ? order_answer(p->c.geo, p->c.pager, p->row_order[k]) : 0;
        if (answer)
            row_answer(p, k, answer);
        moved |= answer != 0;
    }
    while (p->c.lookup && room(p) && lookup_next(p->c.lookup, &o, &which)) {
        o.number = p->row_order[which] = p->next_order++;
        *reading(p, o.number) = PLACE_ROWS;
        order_publish(p->c.geo, p->c.orders, &o, &p->c.bells[p->c.pager_outbox], &p->c.pager->asleep);
        moved = 1;
    }
    return moved;
}
static int look_for_rows(const struct paging *p)
{
    if (!p->c.lookup)
        return 0;
    for (uint32_t k = 0; k < LOOKUP_ORDERS; k++)
        if (p->row_order[k] && order_answer(p->c.geo, p->c.pager, p->row_order[k]))
            return 1;
    return lookup_wants(p->c.lookup);
}

/* ---- the rounds ---- */

static const struct order *order_of(const struct paging *p, const struct slab *s)
{
    return &p->c.orders->slot[s->order & (p->c.geo->order_slots - 1)].order;
}

/* A pack's block is damaged or cannot be read: the same bytes from the original, into the same slab. Needs
 * room. 0: there is no other source. */
static int read_again(struct paging *p, uint32_t i)
{
    struct slab *s = &p->slab[i];
    struct order o = {.number = p->next_order, .prio = s->warm && !s->raised ? PRIO_WARM : PRIO_DEMAND};

    if (!pieces_expert_again(p->c.pieces, s->layer, s->expert, i, &o))
        return 0;
    fprintf(stderr, "conclave: layer %u, expert %u: read from %s instead\n", s->layer, s->expert,
            pieces_original_path(p->c.pieces, s->layer, s->expert));
    p->damaged[expert_at(p, s->layer, s->expert)] = 1;
    *reading(p, s->order) = PLACE_NONE;
    s->order = p->next_order++;
    *reading(p, s->order) = i;
    add(&p->count.again, 1);
    order_publish(p->c.geo, p->c.orders, &o, &p->c.bells[p->c.pager_outbox], &p->c.pager->asleep);
    return 1;
}

static void take_answer(struct paging *p, uint32_t i, int answer)
{
    struct slab *s = &p->slab[i];
    int warm = s->warm;

    if (answer < 0) { /* the pager's own line, which names file and byte, is there before its answer and
                       * ends the run from the watching thread: let it speak first */
        sleep(1);
        watch_fatal(*p->c.watch, "pager: layer %u expert %u cannot be read", s->layer, s->expert);
    }
    arrive(p, i);
    if (warm) {
        add(&p->count.warm_reads, 1);
        add(&p->count.warm_bytes, order_bytes(&p->c.orders->slot[s->order & (p->c.geo->order_slots - 1)].order));
        atomic_store_explicit(&p->count.warm_left, p->warm_end - p->warm_at + p->n_warm, memory_order_release);
    }
}

/* Reads that have ended, slabs that have been left. Returns whether anything moved. */
static int advance(struct paging *p)
{
    int moved = 0;

    for (uint32_t n = 0; n < p->n_busy;) {
        uint32_t i = p->busy[n];
        struct slab *s = &p->slab[i];
        if (s->state == SLAB_LEAVING) {
            if (named(p, i)) {
                n++;
                continue;
            }
            set_free(p, i);
        } else {
            int answer = order_answer(p->c.geo, p->c.pager, s->order);
            if (answer < 0 && s->ahead) {
                p->busy[n] = p->busy[--p->n_busy];
                give_up(p, i);
                moved = 1;
                continue;
            }
            if (!answer || (answer < 0 && order_of(p, s)->flags & ORDER_SOFT &&
                            (!room(p) || read_again(p, i)))) {
                n++;
                continue;
            }
            take_answer(p, i, answer);
        }
        p->busy[n] = p->busy[--p->n_busy];
        moved = 1;
    }
    return moved;
}

/* An item whose expert is at hand now, or a share that is to be given again. Returns whether something
 * was given. */
static int give(struct paging *p, const struct need *n)
{
    uint32_t at = *place_of(p, n->layer, n->expert), owner[MAX_NODES];
    uint64_t epoch;

    if (n->why == NEED_AGAIN) /* rule 20: where the place still stands; else its item wants a place */
        return atomic_load_explicit(place_header(p->c.tables, p->c.geo, n->share, n->was.place),
                                    memory_order_relaxed) == n->was.epoch &&
               steward_give(p->steward, n->call, n->item, n->share,
                            n->was.place < p->c.geo->n_slabs ? p->c.owner[n->share]
                                                             : cards_outbox(p->cards, n->was.place),
                            n->was.place, n->was.epoch, now_ns()) > 0;
    if (n->why != NEED_PLACE) /* cards have all shares of an item, and nodes' workers do not die here */
        return 0;
    if (at != PLACE_NONE && p->slab[at].state == SLAB_RESIDENT)
        return steward_grant(p->steward, n->call, n->item, at, p->slab[at].epoch, p->c.owner, now_ns()) > 0;
    at = cards_place(p->cards, n->layer, n->expert, &epoch);
    if (at == PLACE_NONE)
        return 0;
    for (uint32_t k = 0; k < p->c.geo->n_nodes; k++)
        owner[k] = cards_outbox(p->cards, at);
    return steward_grant(p->steward, n->call, n->item, at, epoch, owner, now_ns()) > 0;
}

/* Grants what is there, then fetches what is not: who was granted something holds its slab. */
static int serve(struct paging *p)
{
    int moved = 0;

    if (p->c.own_uses)
        p->c.own_uses(p->c.arg);
    if (p->c.uses)
        add(&p->count.lost_uses, uses_drain_both(p->c.uses, p->policy, p->cards ? cards_policy(p->cards) : NULL));
    if (p->policy)
        promote(p);
    p->n_needs = steward_needs(p->steward, now_ns(), 0, p->need, MAX_NEEDS);
    for (size_t i = 0; i < p->n_needs && i < MAX_NEEDS; i++)
        moved |= give(p, &p->need[i]);
    for (size_t i = 0; i < p->n_needs && i < MAX_NEEDS; i++) {
        const struct need *n = &p->need[i];
        uint32_t at = *place_of(p, n->layer, n->expert);
        if (n->why != NEED_PLACE || (at == PLACE_NONE && on_card(p, n->layer, n->expert)))
            continue;
        if (n->layer == p->ahead_layer) /* it has spoken */
            p->ahead_end = p->ahead_at;
        moved |= at == PLACE_NONE ? fetch(p, n->layer, n->expert) : raise_read(p, at);
    }
    return moved;
}

/* Whose heat is kept: RAM's policy, or where RAM has everything the cards'. */
static struct policy *policy_of_heat(const struct paging *p)
{
    return p->policy || !p->cards ? p->policy : cards_policy(p->cards);
}
static void keep_heat(struct paging *p)
{
    struct policy *of = policy_of_heat(p);
    int news = of && p->c.uses->tail != p->kept;

    if (p->c.heat && of)
        heat_keeper_give(p->c.heat, news ? of : NULL);
    if (news)
        p->kept = p->c.uses->tail;
}

static uint32_t n_cards(const struct paging *p)
{
    return p->c.cards ? p->c.cards->n_cards : 0;
}
/* Outbox numbers of the nodes, then of the cards; 0: nobody's. */
static uint32_t worker_of(const struct paging *p, uint32_t k)
{
    return k < p->c.geo->n_nodes ? p->c.owner[k] : cards_worker(p->cards, k - p->c.geo->n_nodes);
}

/* Something to do that no earlier look has seen? */
static int look(void *arg)
{
    struct paging *p = arg;

    if (atomic_load_explicit(&p->stop, memory_order_relaxed))
        return LOOK_FOUND;
    if (atomic_load_explicit(p->c.disk_call, memory_order_acquire) >= steward_cursor(p->steward))
        return LOOK_FOUND;
    if (p->c.taken && atomic_load_explicit(call_word(p->c.geo, p->c.calls, steward_cursor(p->steward)),
                                           memory_order_acquire) >= PUBLISHED(steward_cursor(p->steward)))
        return LOOK_FOUND;
    if (p->c.heat && heat_keeper_wants(p->c.heat))
        return LOOK_FOUND;
    if (p->c.ahead && ahead_new(p->c.ahead, p->ahead_seen))
        return LOOK_FOUND;
    for (uint32_t n = 0; n < p->n_busy; n++)
        if (p->slab[p->busy[n]].state == SLAB_READING &&
            order_answer(p->c.geo, p->c.pager, p->slab[p->busy[n]].order))
            return LOOK_FOUND;
    if (look_for_rows(p) || (p->cards && cards_look(p->cards)))
        return LOOK_FOUND;
    if (p->n_needs || p->n_demanded)
        return steward_look(p->steward);
    for (uint32_t s = 0; s < CALL_SLOTS; s++) /* a declined item in a call that had none on disk */
        for (uint32_t k = 0; k < p->c.geo->n_nodes + n_cards(p); k++) {
            uint32_t who = worker_of(p, k);
            uint64_t w = who ? atomic_load_explicit(&p->c.outbox[who]->owner[s], memory_order_acquire) : 0;
            if (w & 1 && call_is_open(p->c.geo, p->c.calls, w / 2))
                return LOOK_FOUND;
        }
    return LOOK_NOTHING;
}

/* A step whose calls are published by a kernel, which cannot ring. */
static int step_open(const struct paging *p)
{
    return p->c.step_open && atomic_load_explicit(p->c.step_open, memory_order_acquire);
}
static int look_asleep(void *arg)
{
    return step_open(arg) ? LOOK_FOUND : look(arg);
}

static void *run(void *arg)
{
    struct paging *p = arg;
    struct err e = {0};
    uint32_t stuck_round = 0;
    uint64_t tail = 0; /* of the uses, at the last round */
    cpu_set_t own;

    if (p->c.own_cpu) {
        CPU_ZERO(&own);
        CPU_SET(p->c.own_cpu - 1, &own);
        (void)!pthread_setaffinity_np(pthread_self(), sizeof own, &own); /* elsewhere it is as good */
    }

    while (!atomic_load_explicit(&p->stop, memory_order_acquire)) {
        uint32_t round = 0;
        int moved, arrived, lives;
        if (steward_follow(p->steward, now_ns(), &e) < 0)
            watch_fatal(*p->c.watch, "steward: %s", e.msg);
        lives = cards_lives(p->cards) | look_up(p);
        p->stuck = p->c.churn_us != 0;
        arrived = moved = advance(p);
        moved |= lives | serve(p);
        moved |= read_ahead(p);
        moved |= warm_up(p);
        moved |= p->cards && cards_round(p->cards, arrived || p->c.uses->tail != tail);
        tail = p->c.uses ? p->c.uses->tail : 0;
        if (p->c.heat && heat_keeper_wants(p->c.heat))
            keep_heat(p);
        if (moved)
            continue;
        if (p->stuck) { /* a call's stamps ring the trunk, not us */
            if (!wait_round(&stuck_round, 1))
                bell_sleep(&p->c.bells[PROC_STEWARD], &p->c.board->asleep_steward, look_asleep, p, STUCK_MS);
            continue;
        }
        stuck_round = 0;
        while (p->n_needs && !look(p) && wait_round(&round, 1))
            ;
        while (step_open(p) && !look(p))
            sched_yield();
        if (!look_asleep(p))
            bell_sleep(&p->c.bells[PROC_STEWARD], &p->c.board->asleep_steward, look_asleep, p, 0);
    }
    if (policy_of_heat(p))
        uses_drain(p->c.uses, policy_of_heat(p));
    keep_heat(p);
    return NULL;
}

/* ---- life ---- */

/* Experts that were loaded before the thread starts. */
static void start_places(struct paging *p)
{
    const struct geometry *g = p->c.geo;

    for (uint32_t l = 0; l < g->n_layers; l++)
        for (uint32_t x = 0; x < g->n_experts; x++) {
            uint64_t entry = atomic_load_explicit(table_entry(p->c.tables, g, l, x), memory_order_relaxed);
            uint32_t i = entry ? ENTRY_PLACE(entry) : PLACE_NONE;
            *place_of(p, l, x) = i;
            if (!entry)
                continue;
            p->slab[i] = (struct slab){
                .state = SLAB_RESIDENT, .layer = l, .expert = x, .epoch = ENTRY_EPOCH(entry)};
            if (p->next_epoch <= ENTRY_EPOCH(entry))
                p->next_epoch = ENTRY_EPOCH(entry) + 1;
        }
    p->next_order = atomic_load_explicit(&p->c.orders->head, memory_order_relaxed) + 1;
}

/* Of the hottest, those for which there will be a place. */
static int plan_warm_up(struct paging *p, struct err *e)
{
    const struct geometry *g = p->c.geo;
    const struct slab_plan *plan = p->c.slabs;
    uint32_t left[POLICY_SIZES];
    uint64_t total = 0;
    size_t n;

    if (!p->c.heat || !heat_keeper_tell(p->c.heat, p->policy))
        return 0;
    p->warm = malloc(((size_t)g->n_layers * g->n_experts + 1) * sizeof *p->warm);
    if (!p->warm)
        return err_set(e, -ENOMEM, "no memory for the list of hot experts");
    memcpy(left, plan->pools.places, sizeof left);
    n = policy_hottest(p->policy, p->warm);
    for (size_t i = 0; i < n; i++) {
        uint32_t layer = p->warm[i] / g->n_experts, s = p->class_of[layer];
        struct order o = {0};
        while (s < plan->pools.n && !left[s])
            s++;
        if (s == plan->pools.n || p->warm[i] % g->n_experts >= table_layer(p->c.tables, layer)->n_experts)
            continue;
        left[s]--;
        pieces_expert(p->c.pieces, layer, p->warm[i] % g->n_experts, 0, &o);
        total += order_bytes(&o);
        p->warm[p->warm_end++] = p->warm[i];
    }
    atomic_store_explicit(&p->count.warm_total, total, memory_order_relaxed);
    atomic_store_explicit(&p->count.warm_left, p->warm_end, memory_order_relaxed);
    return 0;
}

static int start_policy(struct paging *p, struct err *e)
{
    const struct geometry *g = p->c.geo;
    const struct slab_plan *plan = p->c.slabs;
    struct policy_config pc = {.kind = p->c.policy,
                               .n_layers = g->n_layers,
                               .n_experts = g->n_experts,
                               .n_sizes = plan->pools.n,
                               .size_of = p->class_of};
    int rc;

    for (uint32_t l = 0; l < g->n_layers; l++)
        p->class_of[l] = (uint8_t)slab_class_of_layer(plan, table_layer(p->c.tables, l), g->n_nodes);
    for (uint32_t i = g->n_slabs; i < g->n_slabs + 2 * POLICY_SIZES; i++)
        p->slab[i].next = p->slab[i].prev = i;
    for (uint32_t i = 0; i < g->n_slabs; i++) {
        p->slab[i].class = (uint8_t)slab_class(plan, i);
        set_free(p, i);
    }
    memcpy(pc.places, plan->pools.places, sizeof pc.places);
    rc = policy_open(&pc, &p->policy, e);
    return rc ? rc : plan_warm_up(p, e);
}

/* ---- what the cards' tier asks of RAM ---- */

static uint32_t in_ram(void *arg, uint32_t layer, uint32_t expert, uint64_t *epoch)
{
    struct paging *p = arg;
    uint32_t i = *place_of(p, layer, expert);

    if (i == PLACE_NONE || p->slab[i].state != SLAB_RESIDENT)
        return PLACE_NONE;
    *epoch = p->slab[i].epoch;
    return i;
}
static void hold(void *arg, uint32_t slab, int more)
{
    struct paging *p = arg;

    p->slab[slab].held = (uint8_t)(p->slab[slab].held + more);
}
/* Where not all fit an expert has one place: what it leaves behind is the next to be overwritten. */
static void came_to_card(void *arg, uint32_t layer, uint32_t expert)
{
    struct paging *p = arg;
    uint32_t i = *place_of(p, layer, expert);

    if (!p->policy || i == PLACE_NONE)
        return;
    if (policy_resident(p->policy, layer, expert))
        dismiss(p, layer, expert);
    unlink_slab(p, i);
    link_first(p, loose_list(p, p->slab[i].class), i);
}

/* As for one that is read: what the policy admits takes a place of its, else a spare slab, of which one is left
 * to demands. */
static uint32_t room_for(void *arg, uint32_t layer, uint32_t expert)
{
    struct paging *p = arg;
    uint32_t own = p->class_of[layer], i;
    struct policy_answer a;

    if (!p->policy || *place_of(p, layer, expert) != PLACE_NONE)
        return PLACE_NONE;
    a = policy_admit(p->policy, layer, expert, 0, NULL, NULL);
    if (a.verdict == POLICY_FREE || a.verdict == POLICY_REPLACE) {
        i = take_spare(p, a.place);
        if (i == PLACE_NONE)
            return i;
        if (a.verdict == POLICY_REPLACE)
            dismiss(p, a.layer, a.expert);
        admit(p, layer, expert, a.place);
    } else {
        i = p->c.slabs->spare[own] < 2 ? PLACE_NONE : take_spare(p, own);
        if (i == PLACE_NONE)
            return i;
    }
    p->slab[i] = (struct slab){.state = SLAB_LANDING, .layer = layer, .expert = expert, .class = p->slab[i].class};
    *place_of(p, layer, expert) = i;
    return i;
}

/* The entry names the card's slot still; it will name this slab when the expert leaves there. */
static void landed(void *arg, uint32_t i, int whole)
{
    struct paging *p = arg;
    struct slab *s = &p->slab[i];

    if (!whole) {
        *place_of(p, s->layer, s->expert) = PLACE_NONE;
        if (policy_resident(p->policy, s->layer, s->expert)) {
            policy_leave(p->policy, s->layer, s->expert);
            atomic_fetch_sub_explicit(&p->count.residents, 1, memory_order_relaxed);
        }
        set_free(p, i);
        return;
    }
    s->state = SLAB_RESIDENT;
    s->epoch = p->next_epoch++;
    for (uint32_t k = 0; k < p->c.geo->n_nodes; k++)
        atomic_store_explicit(table_header(p->c.tables, p->c.geo, k, i), s->epoch, memory_order_release);
    if (!policy_resident(p->policy, s->layer, s->expert))
        set_loose(p, i);
}

/* Of what a worker has computed so far, if that was long enough. */
static double rate_of(const struct outbox *b)
{
    double ns = (double)atomic_load_explicit(&b->count.work_ns, memory_order_relaxed);

    return ns < RATE_NS ? 0 : (double)atomic_load_explicit(&b->count.weight_bytes, memory_order_relaxed) / ns * 1e9;
}

static void rates(void *arg, struct spread_rates *r)
{
    struct paging *p = arg;

    memset(r, 0, sizeof *r);
    r->nodes.most = 1;
    if (p->c.card_rates)
        *r = *p->c.card_rates;
    if (p->c.card_rates || !p->c.cards_measured)
        return;
    for (uint32_t k = 0; k < p->c.geo->n_nodes; k++) /* each has its part of every item */
        r->nodes.rate += rate_of(p->c.outbox[p->c.owner[k]]);
    for (uint32_t k = 0; k < n_cards(p); k++) {
        const struct outbox *b = p->cards ? p->c.outbox[cards_worker(p->cards, k)] : NULL; /* at the start: none */
        r->card[k].rate = b ? rate_of(b) : 0;
    }
}

static int start_cards(struct paging *p, struct err *e)
{
    struct cards_config c = {.geo = p->c.geo,
                             .tables = p->c.tables,
                             .bells = p->c.bells,
                             .steward = p->steward,
                             .watch = p->c.watch,
                             .plan = p->c.cards,
                             .size_of = p->c.card_size_of,
                             .box = p->c.outbox,
                             .card = p->c.card,
                             .trunk = p->c.trunk_card,
                             .churn_us = p->c.churn_us,
                             .life = p->c.life,
                             .calls = p->c.calls,
                             .step = p->c.step,
                             .arg = p,
                             .in_ram = in_ram,
                             .hold = hold,
                             .room = room_for,
                             .landed = landed,
                             .rates = rates,
                             .all_in_ram = p->c.slabs->resident,
                             .came = came_to_card};
    int rc;

    for (uint32_t k = 0; k < n_cards(p); k++)
        steward_worker(p->steward, p->c.card[k].outbox, p->c.outbox[p->c.card[k].outbox], WORKER_LIVE);
    if (!n_cards(p))
        return 0;
    rc = cards_open(&c, &p->cards, e);
    if (!rc && p->c.heat && heat_keeper_tell(p->c.heat, cards_policy(p->cards)))
        cards_warm(p->cards);
    return rc;
}

static void ring_steward(void *arg)
{
    struct paging *p = arg;

    bell_ring(&p->c.bells[PROC_STEWARD], &p->c.board->asleep_steward);
}

static void free_all(struct paging *p)
{
    cards_close(p->cards);
    steward_close(p->steward);
    policy_close(p->policy);
    free(p->slab);
    free(p->place_of);
    free(p->class_of);
    free(p->damaged);
    free(p->reading);
    free(p->busy);
    free(p->warm);
    free(p);
}

int paging_start(const struct paging_config *c, struct paging **out, struct err *e)
{
    const struct geometry *g = c->geo;
    struct paging *p = calloc(1, sizeof *p);
    struct steward_config sc = {.geo = g,
                                .board = c->board,
                                .bells = c->bells,
                                .calls = c->calls,
                                .amends = c->amends,
                                .ring_calls = c->taken != NULL,
                                .taken = c->taken,
                                .arg = c->arg,
                                .first = 1};
    int rc;

    if (!p)
        return err_set(e, -ENOMEM, "no memory for the steward");
    p->c = *c;
    p->next_epoch = 1;
    p->slab = calloc((size_t)g->n_slabs + 2 * POLICY_SIZES, sizeof *p->slab);
    p->place_of = malloc(((size_t)g->n_layers * g->n_experts + 1) * sizeof *p->place_of);
    p->class_of = calloc(g->n_layers + 1, 1);
    p->damaged = calloc((size_t)g->n_layers * g->n_experts + 1, 1);
    p->reading = malloc(g->order_slots * sizeof *p->reading);
    p->busy = malloc(((size_t)g->n_slabs + 1) * sizeof *p->busy);
    if (!p->slab || !p->place_of || !p->class_of || !p->damaged || !p->reading || !p->busy) {
        rc = err_set(e, -ENOMEM, "no memory for %u places of experts", g->n_slabs);
        goto failed;
    }
    for (uint32_t i = 0; i < g->order_slots; i++)
        p->reading[i] = PLACE_NONE;
    start_places(p);
    if ((!c->slabs->resident && (rc = start_policy(p, e))) || (rc = steward_open(&sc, &p->steward, e)))
        goto failed;
    for (uint32_t k = 0; k < g->n_nodes; k++)
        steward_worker(p->steward, c->owner[k], c->outbox[c->owner[k]], WORKER_LIVE);
    if ((rc = start_cards(p, e)))
        goto failed;
    atomic_store_explicit(&c->board->watch, 1, memory_order_release);
    rc = pthread_create(&p->thread, NULL, run, p);
    if (rc) {
        rc = err_set(e, -rc, "cannot start the steward's thread: %s", strerror(rc));
        goto failed;
    }
    if (policy_of_heat(p) && c->heat)
        heat_keeper_start(c->heat, ring_steward, p);
    *out = p;
    return 0;
failed:
    free_all(p);
    return rc;
}

void paging_stop(struct paging *p)
{
    if (!p)
        return;
    if (p->c.heat) /* it rings the steward */
        heat_keeper_stop(p->c.heat);
    atomic_store_explicit(&p->stop, 1, memory_order_release);
    ring_steward(p);
    pthread_join(p->thread, NULL);
    atomic_store_explicit(&p->c.board->watch, 0, memory_order_release);
    free_all(p);
}

const struct steward_counters *paging_counters(const struct paging *p)
{
    return steward_counters(p->steward);
}

static uint64_t now_of(const _Atomic uint64_t *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

void paging_stats(const struct paging *p, struct paging_stats *s)
{
    const struct counters *n = &p->count;

    *s = (struct paging_stats){
        .warm = atomic_load_explicit(&n->warm_left, memory_order_acquire) > 0,
        .reads = now_of(&n->reads),
        .moves = now_of(&n->moves),
        .warm_reads = now_of(&n->warm_reads),
        .warm_bytes = now_of(&n->warm_bytes),
        .warm_total = now_of(&n->warm_total),
        .warm_raised = now_of(&n->warm_raised),
        .ahead_used = now_of(&n->ahead_used),
        .ahead_late = now_of(&n->ahead_late),
        .ahead_wasted = now_of(&n->ahead_wasted),
        .ahead_dropped = now_of(&n->ahead_dropped),
        .lost_uses = now_of(&n->lost_uses),
        .again = now_of(&n->again),
        .most_open = atomic_load_explicit(&n->most_open, memory_order_relaxed),
        .residents = atomic_load_explicit(&n->residents, memory_order_relaxed),
    };
    cards_stats(p->cards, &s->cards);
    for (uint32_t i = 0; p->policy && i < p->c.slabs->pools.n; i++) {
        s->places += p->c.slabs->pools.places[i];
        s->spare += p->c.slabs->spare[i];
    }
}
