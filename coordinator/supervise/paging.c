/* Experts come and go here. "Leaving a place" (docs/DESIGN.md section 4) is the order of the lines of
 * leave() and arrive(); what must be waited for is the steward's to say. */
#include "coordinator/supervise/paging.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NEEDS 64 /* looked at in one round; the rest comes in the next */
#define STUCK_MS 1   /* between looks at stamps that ring nobody here, after the rounds */

struct paging {
    struct paging_config c;
    struct steward *steward;
    struct place *place;
    uint32_t *place_of; /* by layer * n_experts + expert: its place in any state, or PLACE_NONE */
    uint64_t next_order, next_epoch;
    uint32_t *reading;  /* by order number modulo the ring: its place until the answer is taken */
    uint32_t n_busy; /* places leaving or being read */
    int stuck;       /* something waits for stamps that ring nobody here: look again soon */
    size_t n_needs;
    struct need need[MAX_NEEDS];
    pthread_t thread;
    _Atomic int stop;
};

static size_t expert_at(const struct paging *p, uint32_t layer, uint32_t expert)
{
    return (size_t)layer * p->c.geo->n_experts + expert;
}

static uint32_t *reading(struct paging *p, uint64_t order)
{
    return &p->reading[order & (p->c.geo->order_slots - 1)];
}

/* May one more order go out: its slot's former answer was given and taken? */
static int room(struct paging *p)
{
    return *reading(p, p->next_order) == PLACE_NONE && order_room(p->c.geo, p->c.pager, p->next_order);
}

static void read_into(struct paging *p, uint32_t i)
{
    struct place *pl = &p->place[i];
    struct order o = {.number = p->next_order, .prio = PRIO_DEMAND};

    pieces_expert(p->c.pieces, pl->layer, pl->expert, i, &o);
    *reading(p, p->next_order) = i;
    pl->order = p->next_order++;
    pl->state = PLACE_READING;
    order_publish(p->c.geo, p->c.orders, &o, &p->c.bells[p->c.pager_outbox], &p->c.pager->asleep);
}

/* The entry first, then the header on every node, for which nodes that sleep on a stage stamp are woken;
 * steward_place_named makes the fence. */
static void leave(struct paging *p, uint32_t i)
{
    struct place *pl = &p->place[i];

    atomic_store_explicit(table_entry(p->c.tables, p->c.geo, pl->layer, pl->expert), 0, memory_order_release);
    for (uint32_t k = 0; k < p->c.geo->n_nodes; k++)
        atomic_store_explicit(table_header(p->c.tables, p->c.geo, k, i), 0, memory_order_release);
    if (p->c.geo->n_nodes > 1)
        steward_ring_workers(p->steward);
    p->place_of[expert_at(p, pl->layer, pl->expert)] = PLACE_NONE;
}

/* The bytes are there: header on every node, then the entry. */
static void arrive(struct paging *p, uint32_t i)
{
    struct place *pl = &p->place[i];

    pl->state = PLACE_RESIDENT;
    pl->epoch = p->next_epoch++;
    for (uint32_t k = 0; k < p->c.geo->n_nodes; k++)
        atomic_store_explicit(table_header(p->c.tables, p->c.geo, k, i), pl->epoch, memory_order_release);
    atomic_store_explicit(table_entry(p->c.tables, p->c.geo, pl->layer, pl->expert),
                          ENTRY(i, pl->epoch), memory_order_release);
}

static int named(struct paging *p, uint32_t i)
{
    struct err e = {0};
    int rc = steward_place_named(p->steward, i, now_ns(), &e);

    if (rc < 0)
        watch_fatal(*p->c.watch, "steward: %s", e.msg);
    return rc;
}
static int busy(void *arg, uint32_t place)
{
    return named(arg, place);
}

/* Sends an expert on its way into some place, if there is one to be had now. */
static void fetch(struct paging *p, uint32_t layer, uint32_t expert)
{
    const struct geometry *g = p->c.geo;
    uint32_t i;

    if (!room(p))
        return;
    i = lru_pick(p->place, g->n_slabs, p->c.used, g->n_experts, busy, p);
    if (i == PLACE_NONE) {
        p->stuck = 1; /* every place is named; stamps will free one */
        return;
    }
    if (p->place[i].state == PLACE_RESIDENT)
        leave(p, i);
    p->place[i] = (struct place){.state = PLACE_LEAVING, .layer = layer, .expert = expert};
    p->place_of[expert_at(p, layer, expert)] = i;
    p->n_busy++;
    if (!named(p, i)) /* a call may have been published between the pick and the mark */
        read_into(p, i);
}

/* Reads that have ended, places that have been left. Returns whether anything moved. */
static int advance(struct paging *p)
{
    int moved = 0;

    for (uint32_t i = 0; p->n_busy && i < p->c.geo->n_slabs; i++) {
        struct place *pl = &p->place[i];
        if (pl->state == PLACE_LEAVING) {
            if (room(p) && !named(p, i)) {
                read_into(p, i);
                moved = 1;
            } else {
                p->stuck = 1;
            }
        } else if (pl->state == PLACE_READING) {
            int answer = order_answer(p->c.geo, p->c.pager, pl->order);
            if (answer < 0) /* its text came over the control socket and ends the run */
                watch_fatal(*p->c.watch, "pager: layer %u expert %u cannot be read", pl->layer, pl->expert);
            if (answer > 0) {
                *reading(p, pl->order) = PLACE_NONE;
                arrive(p, i);
                p->n_busy--;
                moved = 1;
            }
        }
    }
    return moved;
}

/* Grants what is there, fetches what is not. */
static int serve(struct paging *p)
{
    int moved = 0;

    p->n_needs = steward_needs(p->steward, now_ns(), 0, p->need, MAX_NEEDS);
    for (size_t i = 0; i < p->n_needs && i < MAX_NEEDS; i++) {
        const struct need *n = &p->need[i];
        uint32_t at;
        if (n->why == NEED_AGAIN) { /* rule 20: where the place still stands; else its item wants a place */
            if (atomic_load_explicit(table_header(p->c.tables, p->c.geo, n->share, n->was.place),
                                     memory_order_relaxed) == n->was.epoch)
                moved |= steward_give(p->steward, n->call, n->item, n->share, p->c.owner[n->share],
                                      n->was.place, n->was.epoch, now_ns()) > 0;
            continue;
        }
        if (n->why != NEED_PLACE)
            continue; /* owners do not die here: the watch ends the run */
        at = p->place_of[expert_at(p, n->layer, n->expert)];
        if (at == PLACE_NONE) {
            fetch(p, n->layer, n->expert);
            moved |= p->place_of[expert_at(p, n->layer, n->expert)] != PLACE_NONE;
        } else if (p->place[at].state == PLACE_RESIDENT) {
            moved |= steward_grant(p->steward, n->call, n->item, at, p->place[at].epoch, p->c.owner,
                                   now_ns()) > 0;
        }
    }
    return moved;
}

/* Something to do that no earlier look has seen? */
static int look(void *arg)
{
    struct paging *p = arg;

    if (atomic_load_explicit(&p->stop, memory_order_relaxed))
        return LOOK_FOUND;
    if (atomic_load_explicit(p->c.disk_call, memory_order_acquire) >= steward_cursor(p->steward))
        return LOOK_FOUND;
    for (uint32_t i = 0; p->n_busy && i < p->c.geo->n_slabs; i++)
        if (p->place[i].state == PLACE_READING && order_answer(p->c.geo, p->c.pager, p->place[i].order))
            return LOOK_FOUND;
    if (p->n_needs || p->n_busy)
        return steward_look(p->steward);
    for (uint32_t s = 0; s < CALL_SLOTS; s++) /* a declined item in a call that had none on disk */
        for (uint32_t k = 0; k < p->c.geo->n_nodes; k++) {
            uint64_t w = atomic_load_explicit(&p->c.outbox[p->c.owner[k]]->owner[s], memory_order_acquire);
            if (w & 1 && call_is_open(p->c.geo, p->c.calls, w / 2))
                return LOOK_FOUND;
        }
    return LOOK_NOTHING;
}

static void *run(void *arg)
{
    struct paging *p = arg;
    struct err e = {0};
    uint32_t stuck_round = 0;

    while (!atomic_load_explicit(&p->stop, memory_order_acquire)) {
        uint32_t round = 0;
        int moved;
        if (steward_follow(p->steward, now_ns(), &e) < 0)
            watch_fatal(*p->c.watch, "steward: %s", e.msg);
        p->stuck = 0;
        moved = advance(p);
        moved |= serve(p);
        if (moved)
            continue;
        if (p->stuck) { /* a call's stamps ring the trunk, not us */
            if (!wait_round(&stuck_round, 1))
                bell_sleep(&p->c.bells[PROC_STEWARD], &p->c.board->asleep_steward, look, p, STUCK_MS);
            continue;
        }
        stuck_round = 0;
        while (p->n_needs && !look(p) && wait_round(&round, 1))
            ;
        if (!look(p))
            bell_sleep(&p->c.bells[PROC_STEWARD], &p->c.board->asleep_steward, look, p, 0);
    }
    return NULL;
}

static void start_places(struct paging *p)
{
    const struct geometry *g = p->c.geo;

    for (uint32_t l = 0; l < g->n_layers; l++) /* experts that were loaded before the thread starts */
        for (uint32_t x = 0; x < g->n_experts; x++) {
            uint64_t entry = atomic_load_explicit(table_entry(p->c.tables, g, l, x), memory_order_relaxed);
            uint32_t i = entry ? ENTRY_PLACE(entry) : PLACE_NONE;
            p->place_of[expert_at(p, l, x)] = i;
            if (!entry)
                continue;
            p->place[i] = (struct place){
                .state = PLACE_RESIDENT, .layer = l, .expert = x, .epoch = ENTRY_EPOCH(entry)};
            if (p->next_epoch <= ENTRY_EPOCH(entry))
                p->next_epoch = ENTRY_EPOCH(entry) + 1;
        }
    p->next_order = atomic_load_explicit(&p->c.orders->head, memory_order_relaxed) + 1;
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
                                .ring_calls = 0,
                                .first = 1};
    int rc;

    if (!p)
        return err_set(e, -ENOMEM, "no memory for the steward");
    p->c = *c;
    p->next_epoch = 1;
    p->place = calloc(g->n_slabs + 1, sizeof *p->place);
    p->place_of = malloc(((size_t)g->n_layers * g->n_experts + 1) * sizeof *p->place_of);
    p->reading = malloc(g->order_slots * sizeof *p->reading);
    if (!p->place || !p->place_of || !p->reading) {
        rc = err_set(e, -ENOMEM, "no memory for %u places of experts", g->n_slabs);
        goto failed;
    }
    for (uint32_t i = 0; i < g->order_slots; i++)
        p->reading[i] = PLACE_NONE;
    start_places(p);
    rc = steward_open(&sc, &p->steward, e);
    if (rc)
        goto failed;
    for (uint32_t k = 0; k < g->n_nodes; k++)
        steward_worker(p->steward, c->owner[k], c->outbox[c->owner[k]], WORKER_LIVE);
    atomic_store_explicit(&c->board->watch, 1, memory_order_release);
    rc = pthread_create(&p->thread, NULL, run, p);
    if (rc) {
        rc = err_set(e, -rc, "cannot start the steward's thread: %s", strerror(rc));
        goto failed;
    }
    *out = p;
    return 0;
failed:
    steward_close(p->steward);
    free(p->place);
    free(p->place_of);
    free(p->reading);
    free(p);
    return rc;
}

void paging_stop(struct paging *p)
{
    if (!p)
        return;
    atomic_store_explicit(&p->stop, 1, memory_order_release);
    bell_ring(&p->c.bells[PROC_STEWARD], &p->c.board->asleep_steward);
    pthread_join(p->thread, NULL);
    atomic_store_explicit(&p->c.board->watch, 0, memory_order_release);
    steward_close(p->steward);
    free(p->place);
    free(p->place_of);
    free(p->reading);
    free(p);
}

const struct steward_counters *paging_counters(const struct paging *p)
{
    return steward_counters(p->steward);
}
