/* The rings' roles for tests: a producer, a steward and consumers over a small world in which a
 * row's value shows everything that went into it. stress_test.c runs them as processes,
 * ring_threads_test.c as threads under the thread sanitizer. The ring code is the library's; policy
 * and arithmetic are toys.
 *
 * The world: EXPERTS experts, SLABS places on every node. data[node][slab] stands for a slab's
 * bytes and is overwritten like one. A row mixes the call's activations, every share's
 * intermediate, and the data word as read at that moment: a torn copy, a stale place or another
 * call's intermediate is a wrong row, and the producer checks them all. */
#pragma once
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "shm/consumer.h"
#include "shm/steward.h"

#define NODES 2u
#define EXPERTS 12u
#define SLABS 8u
#define TOKENS 2u
#define TOP_K 2u
#define WIDTH 8u /* n_embd and n_ff */
#define ITEMS 4u /* most of a call */
#define AMEND_SLOTS 32u
#define CONSUMERS 8u
#define LIVES 32u /* outbox numbers in a run, replacements included */
#define JUNK 0xDEADu
#define IDLE_CALLS (12 * CALL_SLOTS) /* a consumer owns nothing for so long, now and then */

struct result { /* of the producer */
    _Atomic uint64_t calls, rows, wrong, sleeps, net_finds, disk_items, idle_windows, ns;
};
struct world {
    LINE _Atomic uint64_t entry[EXPERTS];
    LINE _Atomic uint64_t header[NODES][SLABS];
    LINE _Atomic uint64_t data[NODES][SLABS];
    /* like a card's step: from wanted = k on the producer rings nobody for its calls, once the
     * steward has answered that it follows (rule 5); 0: the producer rings */
    LINE _Atomic uint32_t step_wanted;
    LINE _Atomic uint32_t step_followed;
    LINE _Atomic uint32_t idle;            /* 1 + the consumer that is to own nothing */
    LINE _Atomic uint32_t live[CONSUMERS]; /* each consumer's present outbox number */
    LINE _Atomic uint32_t state[LIVES];    /* enum worker_state, set by the test */
    LINE _Atomic uint32_t known[LIVES];    /* the steward's answer */
    LINE _Atomic uint32_t ended;           /* the producer is done */
    LINE struct result producer;
    LINE _Atomic uint64_t steward_sleeps, steward_net_finds;
    LINE struct steward_counters steward; /* written once, at its end */
    /* by consumer: givings that it found given away, or gone, when it came to make them */
    LINE _Atomic uint64_t late[LIVES];
};
struct rig {
    struct geometry geo;
    struct board *board;
    struct bell *bells;
    struct calls *calls;
    struct amends *amends;
    struct outbox *box[MAX_PROCS];
    _Atomic uint32_t *acts;
    struct world *world;
    uint64_t n_calls, deadline_ns;
    int shared;
};

static void *rig_map(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return p;
}

static void rig_open(struct rig *r, uint64_t n_calls, uint64_t deadline_ns)
{
    *r = (struct rig){.geo = {.n_nodes = NODES,
                              .n_layers = 1,
                              .n_experts = EXPERTS,
                              .top_k = TOP_K,
                              .n_embd = WIDTH,
                              .n_ff = WIDTH,
                              .max_tokens = TOKENS,
                              .max_items = ITEMS,
                              .max_pairs = TOKENS * TOP_K,
                              .amend_slots = AMEND_SLOTS,
                              .order_slots = 1,
                              .n_slabs = SLABS,
                              .acts_half = TOKENS * WIDTH * 4,
                              .inter_half = TOKENS * TOP_K * WIDTH * 4,
                              .rows_half = TOKENS * TOP_K * WIDTH * 4},
                      .n_calls = n_calls,
                      .deadline_ns = deadline_ns,
                      .shared = 1};
    r->board = rig_map(sizeof *r->board);
    r->board->geo = r->geo;
    r->bells = rig_map(MAX_PROCS * sizeof *r->bells);
    r->calls = rig_map(calls_bytes(&r->geo));
    r->amends = rig_map(amends_bytes(&r->geo));
    r->acts = rig_map(CALLS_IN_FLIGHT * r->geo.acts_half);
    r->world = rig_map(sizeof *r->world);
    for (uint32_t o = PROC_FIRST_WORKER; o < LIVES; o++)
        r->box[o] = rig_map(outbox_bytes(&r->geo));
    for (uint32_t i = 0; i < CONSUMERS; i++) {
        r->world->live[i] = PROC_FIRST_WORKER + i;
        r->world->state[PROC_FIRST_WORKER + i] = WORKER_LIVE;
    }
    r->board->watch = 1;
}

static inline uint64_t peek(const _Atomic uint64_t *w)
{
    return atomic_load_explicit(w, memory_order_acquire);
}
static inline uint32_t peek32(const _Atomic uint32_t *w)
{
    return atomic_load_explicit(w, memory_order_acquire);
}
static inline uint32_t word_of(const float *arena, size_t i) /* arenas hold words here */
{
    return atomic_load_explicit((const _Atomic uint32_t *)arena + i, memory_order_relaxed);
}
static inline void word_to(float *arena, size_t i, uint32_t v)
{
    atomic_store_explicit((_Atomic uint32_t *)arena + i, v, memory_order_relaxed);
}
static inline uint32_t mix(uint32_t a, uint32_t b)
{
    a = (a ^ b) * 0x9E3779B1u;
    a ^= a >> 15;
    return a * 0x85EBCA77u + b;
}
static inline uint32_t dice(uint64_t *s) /* xorshift */
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return (uint32_t)(*s >> 16);
}
static inline uint32_t act_value(uint64_t call, uint32_t token, uint32_t j)
{
    return mix(mix((uint32_t)call, token), j);
}
static inline uint32_t inter_value(uint32_t act, uint32_t data, uint32_t j)
{
    return mix(mix(act, data), 100 + j);
}
static inline uint32_t row_value(uint32_t sum, uint32_t data, uint32_t j)
{
    return mix(mix(sum, data), 200 + j);
}

/* ================================================================ consumer */

#define PENDING 64
struct pending {
    uint64_t call, am, epoch, acts;
    uint32_t place, item, share, n_pairs;
    struct call_pair pair[TOKENS * TOP_K];
    uint16_t owner[NODES];
    int staged;
};
struct own { /* the call's own givings */
    uint64_t call;
    uint32_t left;
    int declined;
};
struct consumer_role {
    struct rig *r;
    struct consumer c;
    struct outbox *box;
    uint32_t me;
    uint64_t dice;
    struct pending p[PENDING];
    size_t n;
    struct own own[CALL_SLOTS];
};

static void pend(struct consumer_role *w, const struct call *call, uint32_t item, uint32_t share,
                 uint64_t am, uint32_t place, uint64_t epoch)
{
    const struct call_item *it = &call->items[item];
    struct pending p = {.call = call->head.seq,
                        .am = am,
                        .epoch = epoch,
                        .acts = call->head.acts,
                        .place = place,
                        .item = item,
                        .share = share,
                        .n_pairs = it->n_pairs};

    memcpy(p.pair, call->pairs + it->pair0, it->n_pairs * sizeof *p.pair);
    memcpy(p.owner, it->owner, sizeof p.owner);
    for (size_t i = 0; i < w->n; i++)
        if (am && w->p[i].am && w->p[i].call == p.call && w->p[i].item == item &&
            w->p[i].share ==
                share) { /* a later amendment takes an unfinished earlier one's place */
            w->p[i] = p;
            return;
        }
    if (w->n == PENDING)
        abort();
    w->p[w->n++] = p;
}

static int take(struct consumer_role *w, struct call *call)
{
    struct amendment am;
    struct err e = {0};
    int got = 0, rc;

    while ((rc = consumer_call(&w->c, call, &e)) > 0) {
        struct own *own = &w->own[call->head.seq % CALL_SLOTS];
        *own = (struct own){.call = call->head.seq};
        for (uint32_t i = 0; i < call->head.n_items; i++)
            for (uint32_t k = 0; k < NODES; k++)
                if (call->items[i].owner[k] == w->me) {
                    pend(w, call, i, k, 0, call->items[i].place, call->items[i].epoch);
                    own->left++;
                }
        got = 1;
    }
    while (rc >= 0 && (rc = consumer_amend(&w->c, &am, call, &e)) > 0) {
        pend(w, call, am.item, am.share, am.seq, am.place, am.epoch);
        got = 1;
    }
    if (rc < 0) {
        fprintf(stderr, "consumer %u: %s\n", w->me, e.msg);
        abort();
    }
    return got;
}

static int header_differs(const struct consumer_role *w, const struct pending *p)
{
    return peek(&w->r->world->header[p->share][p->place]) != p->epoch;
}

/* The other share's present owner, if it has staged. */
static struct outbox *other_staged(const struct consumer_role *w, const struct pending *p,
                                   uint32_t k)
{
    const struct geometry *g = &w->r->geo;
    uint32_t o;

    present_giving(g, w->r->amends, p->call, p->item, k, p->owner[k], &o);
    if (o == OWNER_DISK || !w->r->box[o] || !staged(g, w->r->box[o], p->call, p->item, k))
        return NULL;
    return w->r->box[o];
}

static int amended(const struct consumer_role *w, const struct pending *p, uint32_t k)
{
    uint32_t o;

    return present_giving(&w->r->geo, w->r->amends, p->call, p->item, k, p->owner[k], &o) != 0;
}

static void ring_waiters(struct consumer_role *w, int steward, int others)
{
    struct rig *r = w->r;

    atomic_thread_fence(memory_order_seq_cst);
    bell_ring_fenced(&r->bells[PROC_TRUNK], &r->calls->asleep);
    if (steward)
        bell_ring_fenced(&r->bells[PROC_STEWARD], &r->board->asleep_steward);
    for (uint32_t i = 0; others && i < CONSUMERS; i++) {
        uint32_t o = peek32(&r->world->live[i]);
        if (o != w->me)
            bell_ring_fenced(&r->bells[o], &r->box[o]->asleep);
    }
}

static void answer(struct consumer_role *w, const struct pending *p, enum stamp_kind kind)
{
    struct own *own = &w->own[p->call % CALL_SLOTS];
    const struct geometry *g = &w->r->geo;
    uint32_t o;

    consumer_stamping(w->box);
    if (p->am || kind == STAMP_DECLINED)
        item_stamp(g, w->box, p->call, p->item, p->share, p->am, kind);
    if (!p->am) {
        own->declined |= kind == STAMP_DECLINED;
        if (--own->left == 0)
            owner_stamp(w->box, p->call, own->declined);
    }
    ring_waiters(w, p->am || kind == STAMP_DECLINED, 0);
    consumer_rung(w->box);
    w->box->count.items += kind == STAMP_DONE;
    w->box->count.amended += kind == STAMP_DONE && p->am;
    w->box->count.declined += kind == STAMP_DECLINED;
    if (present_giving(g, w->r->amends, p->call, p->item, p->share, w->me, &o) != p->am)
        w->r->world->late[w->me]++;
}

static void stage_one(struct consumer_role *w, struct pending *p)
{
    const struct geometry *g = &w->r->geo;
    float *inter = outbox_inter(g, w->box, p->call);

    for (uint32_t i = 0; i < p->n_pairs; i++)
        for (uint32_t j = share_row(WIDTH, p->share, NODES);
             j < share_row(WIDTH, p->share + 1, NODES); j++) {
            uint32_t data = (uint32_t)atomic_load_explicit(&w->r->world->data[p->share][p->place],
                                                           memory_order_relaxed);
            uint32_t act = atomic_load_explicit(
                &w->r->acts[p->acts / 4 + p->pair[i].token * WIDTH + j], memory_order_relaxed);
            word_to(inter, (p->pair[i].token * TOP_K + p->pair[i].rank) * WIDTH + j,
                    inter_value(act, data, j));
        }
    consumer_stamping(w->box);
    stage_stamp(g, w->box, p->call, p->item, p->share);
    ring_waiters(w, 0, 1);
    consumer_rung(w->box);
    p->staged = 1;
}

static void stage_two(struct consumer_role *w, const struct pending *p,
                      struct outbox *const box[NODES])
{
    const struct geometry *g = &w->r->geo;
    float *rows = outbox_rows(g, w->box, p->call);

    for (uint32_t i = 0; i < p->n_pairs; i++) {
        size_t at = (p->pair[i].token * TOP_K + p->pair[i].rank) * WIDTH;
        uint32_t sum = 0;
        for (uint32_t j = 0, k = 0; j < WIDTH; j++) {
            k += j == share_row(WIDTH, k + 1, NODES);
            sum = mix(sum, word_of(outbox_inter(g, box[k], p->call), at + j));
        }
        for (uint32_t j = share_row(WIDTH, p->share, NODES);
             j < share_row(WIDTH, p->share + 1, NODES); j++) {
            uint32_t data = (uint32_t)atomic_load_explicit(&w->r->world->data[p->share][p->place],
                                                           memory_order_relaxed);
            word_to(rows, at + j, row_value(sum, data, j));
        }
    }
    w->box->count.rows += p->n_pairs;
}

/* One look at a giving: 1 it is over, 0 it waits for other shares. */
static int advance(struct consumer_role *w, struct pending *p)
{
    struct outbox *box[NODES];

    if (!call_is_open(&w->r->geo, w->r->calls, p->call)) { /* gone: dropped, without a stamp */
        w->r->world->late[w->me]++;
        if (!p->am)
            w->own[p->call % CALL_SLOTS].left--;
        return 1;
    }
    if (header_differs(w, p) || (!p->staged && dice(&w->dice) % 512 == 0)) {
        answer(w, p, STAMP_DECLINED);
        return 1;
    }
    if (!p->staged)
        stage_one(w, p);
    for (uint32_t k = 0; k < NODES; k++) {
        box[k] = k == p->share ? w->box : other_staged(w, p, k);
        if (!box[k])
            return 0;
    }
    stage_two(w, p, box);
    if (!call_is_open(&w->r->geo, w->r->calls, p->call)) /* retired meanwhile: nobody takes it */
        return 0;                                        /* the next look drops it */
    answer(w, p, STAMP_DONE);
    return 1;
}

static int work(struct consumer_role *w)
{
    int did = 0;

    for (size_t i = 0; i < w->n;) {
        int was = w->p[i].staged;
        if (advance(w, &w->p[i])) {
            w->p[i] = w->p[--w->n];
            did = 1;
        } else {
            did |= w->p[i].staged != was;
            i++;
        }
    }
    return did;
}

/* Before sleep: what a staged giving waits for. */
static int stage_look(void *arg)
{
    struct consumer_role *w = arg;
    int found = LOOK_NOTHING;

    if (peek32(&w->r->world->ended))
        return LOOK_FOUND;
    for (size_t i = 0; i < w->n; i++) {
        const struct pending *p = &w->p[i];
        struct outbox *o = other_staged(w, p, 1 - p->share);
        if (!call_is_open(&w->r->geo, w->r->calls, p->call))
            continue; /* nobody waits for it */
        if (header_differs(w, p))
            return LOOK_FOUND;
        if (o) /* an amendment moves the share at once, its new owner rings when it has seen it */
            found = peek32(&o->ringing) % 2 || amended(w, p, 1 - p->share) ? LOOK_FOUND : LOOK_RUNG;
    }
    return found;
}

static void consumer_role(struct rig *r, uint32_t me, uint64_t call, uint64_t amend)
{
    struct call_item items[ITEMS];
    struct call_pair pairs[TOKENS * TOP_K];
    struct call copy = {.items = items, .pairs = pairs};
    struct consumer_role w = {.r = r, .box = r->box[me], .me = me, .dice = 77777 + me * 1234567};
    struct consumer_config config = {.geo = &r->geo,
                                     .board = r->board,
                                     .bells = r->bells,
                                     .calls = r->calls,
                                     .amends = r->amends,
                                     .box = r->box[me],
                                     .outbox = me,
                                     .call = call,
                                     .amend = amend,
                                     .also = stage_look,
                                     .arg = &w};
    uint32_t round = 0;

    consumer_open(&config, &w.c);
    while (!peek32(&r->world->ended)) {
        int did = take(&w, &copy);
        did |= work(&w);
        w.box->heartbeat++;
        if (did)
            round = 0;
        else if (!wait_round(&round, r->shared)) {
            consumer_sleep(&w.c, 0);
            round = 0;
        }
    }
}

/* ================================================================ producer */

struct open_call_of {
    struct call call;
    struct call_item items[ITEMS];
    struct call_pair pairs[TOKENS * TOP_K];
    uint32_t done_upto; /* shares that are answered, in order */
    uint16_t box[ITEMS][NODES];
};
struct producer_role {
    struct rig *r;
    uint64_t dice, next, first;
    int rings;
    struct open_call_of open[CALLS_IN_FLIGHT];
};

static uint32_t some_owner(struct producer_role *p)
{
    for (;;) {
        uint32_t i = dice(&p->dice) % CONSUMERS;
        if (i + 1 != peek32(&p->r->world->idle))
            return peek32(&p->r->world->live[i]);
    }
}

static uint32_t some_expert(struct producer_role *p)
{
    uint32_t e = dice(&p->dice) % EXPERTS;

    for (int i = 0; i < 6 && dice(&p->dice) % 32 && !peek(&p->r->world->entry[e]); i++)
        e = dice(&p->dice) % EXPERTS; /* mostly one that has a place */
    return e;
}

static struct call_item *item_for(struct producer_role *p, struct open_call_of *o, uint32_t expert)
{
    struct call *c = &o->call;
    struct call_item *it;
    uint64_t entry;

    for (uint32_t i = 0; i < c->head.n_items; i++)
        if (c->items[i].expert == expert)
            return &c->items[i];
    it = &c->items[c->head.n_items++];
    entry = peek(&p->r->world->entry[expert]);
    *it = (struct call_item){.expert = expert,
                             .place = entry ? ENTRY_PLACE(entry) : PLACE_NONE,
                             .epoch = ENTRY_EPOCH(entry)};
    for (uint32_t k = 0; k < NODES; k++)
        it->owner[k] = (uint16_t)(entry ? some_owner(p) : OWNER_DISK);
    p->r->world->producer.disk_items += !entry;
    return it;
}

static void fill(struct producer_role *p, struct open_call_of *o)
{
    uint32_t expert[TOKENS][TOP_K], tokens = dice(&p->dice) % 4 ? 1 : TOKENS, n = 0;
    struct call *c = &o->call;

    c->items = o->items;
    c->pairs = o->pairs;
    c->head = (struct call_head){.seq = p->next,
                                 .n_tokens = tokens,
                                 .top_k = TOP_K,
                                 .acts = p->next % CALLS_IN_FLIGHT * p->r->geo.acts_half};
    o->done_upto = 0;
    for (uint32_t t = 0; t < tokens; t++) {
        expert[t][0] = some_expert(p);
        do
            expert[t][1] = some_expert(p);
        while (expert[t][1] == expert[t][0]);
        item_for(p, o, expert[t][0])->n_pairs++;
        item_for(p, o, expert[t][1])->n_pairs++;
    }
    for (uint32_t i = 0; i < c->head.n_items; i++) {
        o->items[i].pair0 = n;
        for (uint32_t t = 0; t < tokens; t++)
            for (uint32_t k = 0; k < TOP_K; k++)
                if (expert[t][k] == o->items[i].expert)
                    o->pairs[n++] = (struct call_pair){(uint16_t)t, (uint16_t)k};
    }
    c->head.n_pairs = n;
    for (uint32_t i = 0; i < tokens * WIDTH; i++)
        atomic_store_explicit(&p->r->acts[c->head.acts / 4 + i],
                              act_value(p->next, i / WIDTH, i % WIDTH), memory_order_relaxed);
}

static void publish_call(struct producer_role *p)
{
    struct rig *r = p->r;
    struct open_call_of *o = &p->open[p->next % CALLS_IN_FLIGHT];

    fill(p, o);
    for (int i = 0; p->next % 32 == 0 && i < 3; i++)
        sched_yield(); /* looked up, not yet published: places leave meanwhile (rule 13) */
    call_publish(&r->geo, r->calls, &o->call);
    if (p->rings) {
        atomic_thread_fence(memory_order_seq_cst);
        for (uint32_t i = 0; i < o->call.head.n_items; i++)
            for (uint32_t k = 0; k < NODES; k++) {
                uint32_t w = o->items[i].owner[k];
                if (w != OWNER_DISK)
                    bell_ring_fenced(&r->bells[w], &r->box[w]->asleep);
            }
        bell_ring_fenced(&r->bells[PROC_STEWARD], &r->board->asleep_steward);
        atomic_store_explicit(&r->board->calls_rung, p->next, memory_order_release);
    }
    p->next++;
}

/* Is every share of the oldest call DONE by its present owner? */
static int complete(struct producer_role *p)
{
    struct rig *r = p->r;
    struct open_call_of *o = &p->open[p->first % CALLS_IN_FLIGHT];

    for (; o->done_upto < o->call.head.n_items * NODES; o->done_upto++) {
        uint32_t i = o->done_upto / NODES, k = o->done_upto % NODES, box;
        if (!share_done(&r->geo, r->amends, r->box, p->first, i, k, o->items[i].owner[k], &box))
            return 0;
        o->box[i][k] = (uint16_t)box;
    }
    return 1;
}

static int complete_look(void *arg)
{
    struct producer_role *p = arg;
    struct open_call_of *o = &p->open[p->first % CALLS_IN_FLIGHT];

    if (!complete(p))
        return LOOK_NOTHING;
    for (uint32_t i = 0; i < o->call.head.n_items; i++)
        for (uint32_t k = 0; k < NODES; k++)
            if (peek32(&p->r->box[o->box[i][k]]->ringing) % 2)
                return LOOK_FOUND;
    return LOOK_RUNG;
}

static void check_rows(struct producer_role *p)
{
    struct rig *r = p->r;
    struct open_call_of *o = &p->open[p->first % CALLS_IN_FLIGHT];

    for (uint32_t i = 0; i < o->call.head.n_items; i++)
        for (uint32_t q = 0; q < o->items[i].n_pairs; q++) {
            struct call_pair pair = o->pairs[o->items[i].pair0 + q];
            uint32_t at = (pair.token * TOP_K + pair.rank) * WIDTH, sum = 0, data, good = 0;
            data = o->items[i].expert + 1;
            for (uint32_t j = 0; j < WIDTH; j++)
                sum = mix(sum, inter_value(act_value(p->first, pair.token, j), data, j));
            for (uint32_t j = 0, k = 0; j < WIDTH; j++) {
                k += j == share_row(WIDTH, k + 1, NODES);
                good += word_of(outbox_rows(&r->geo, r->box[o->box[i][k]], p->first), at + j) ==
                        row_value(sum, data, j);
            }
            r->world->producer.rows++;
            r->world->producer.wrong += good != WIDTH;
        }
}

static void finish_call(struct producer_role *p)
{
    struct rig *r = p->r;
    uint32_t round = 0;

    while (!complete(p))
        if (!wait_round(&round, r->shared)) {
            r->world->producer.sleeps++;
            r->world->producer.net_finds +=
                bell_sleep(&r->bells[PROC_TRUNK], &r->calls->asleep, complete_look, p, 0) ==
                BELL_NET;
            round = 0;
        }
    check_rows(p);
    call_retire(&r->geo, r->calls, p->first);
    p->first++;
    r->world->producer.calls++;
}

static void rest(void) /* long enough for everybody to fall asleep */
{
    struct timespec t = {.tv_nsec = 3000000};

    nanosleep(&t, NULL);
}

/* Like a card's step (on): the record goes out only when the steward follows. */
static void step(struct producer_role *p, int on)
{
    static const struct timespec wait = {.tv_nsec = 100000};
    struct rig *r = p->r;

    while (p->first < p->next) /* a step ends when its calls are complete */
        finish_call(p);
    p->rings = !on;
    atomic_store_explicit(&r->world->step_wanted, (uint32_t)on, memory_order_release);
    bell_ring(&r->bells[PROC_STEWARD], &r->board->asleep_steward);
    while (on && !peek32(&r->world->step_followed))
        nanosleep(&wait, NULL);
}

static void producer_role(struct rig *r)
{
    struct producer_role p = {.r = r, .dice = 424242, .next = 1, .first = 1, .rings = 1};
    uint64_t start = now_ns();

    while (p.first <= r->n_calls) {
        uint64_t n = p.next;
        if (n > r->n_calls || n - p.first == CALLS_IN_FLIGHT) {
            finish_call(&p);
            continue;
        }
        if (n % 2048 == 1024 || n % 2048 == 1024 + IDLE_CALLS) { /* somebody owns nothing */
            uint32_t who = n % 2048 == 1024 ? 1 + (uint32_t)(n / 2048) % CONSUMERS : 0;
            atomic_store_explicit(&r->world->idle, who, memory_order_release);
            r->world->producer.idle_windows += !who;
        }
        if (n % 4096 == 2048)
            step(&p, 1);
        else if (n % 4096 == 0)
            step(&p, 0);
        if (n % 8192 == 5000) { /* between steps: nothing is published, everybody sleeps */
            while (p.first < n)
                finish_call(&p);
            rest();
        }
        publish_call(&p);
    }
    r->world->producer.ns = now_ns() - start;
    atomic_store_explicit(&r->world->ended, 1, memory_order_release);
    for (uint32_t o = 0; o < LIVES; o++)
        bell_wake(&r->bells[o]);
}

/* ================================================================ steward */

struct place {
    uint32_t expert; /* EXPERTS: none, free; LEAVING: its givings are waited for */
    uint64_t epoch;
};
#define LEAVING (EXPERTS + 1)
struct steward_role {
    struct rig *r;
    struct steward *s;
    struct place place[SLABS];
    uint32_t n_leaving;
    uint64_t epoch, dice, next_eviction, next_leaving;
};

static void seat(struct steward_role *w, uint32_t p, uint32_t expert)
{
    struct world *x = w->r->world;

    w->place[p] = (struct place){expert, ++w->epoch};
    for (uint32_t k = 0; k < NODES; k++) /* the read */
        atomic_store_explicit(&x->data[k][p], expert + 1, memory_order_relaxed);
    for (uint32_t k = 0; k < NODES; k++)
        atomic_store_explicit(&x->header[k][p], w->epoch, memory_order_release);
}

static void begin_leaving(struct steward_role *w, uint32_t p)
{
    struct world *x = w->r->world;

    atomic_store_explicit(&x->entry[w->place[p].expert], 0, memory_order_release);
    for (uint32_t k = 0; k < NODES; k++)
        atomic_store_explicit(&x->header[k][p], 0, memory_order_release);
    steward_ring_workers(w->s);
    w->place[p].expert = LEAVING;
    w->n_leaving++;
}

static void fail(const struct err *e)
{
    fprintf(stderr, "steward: %s\n", e->msg);
    abort();
}

static int named(struct steward_role *w, uint32_t p)
{
    struct err e = {0};
    int rc = steward_place_named(w->s, p, now_ns(), &e);

    if (rc < 0)
        fail(&e);
    return rc;
}

static uint32_t place_of(const struct steward_role *w, uint32_t expert)
{
    uint32_t p = 0;

    while (p < SLABS && w->place[p].expert != expert)
        p++;
    return p;
}

/* A place to leave: one that no open giving names if there is such a one. */
static void leave_some(struct steward_role *w)
{
    uint32_t p = dice(&w->dice) % SLABS;

    for (uint32_t i = 0; i < SLABS && (w->place[p].expert >= EXPERTS || named(w, p)); i++)
        p = (p + 1) % SLABS;
    if (w->place[p].expert < EXPERTS)
        begin_leaving(w, p);
}

/* Places whose last giving is over become free, and their bytes are anybody's. */
static void let_go(struct steward_role *w)
{
    for (uint32_t p = 0; p < SLABS && w->n_leaving; p++)
        if (w->place[p].expert == LEAVING && !named(w, p)) {
            w->place[p].expert = EXPERTS;
            w->n_leaving--;
            for (uint32_t k = 0; k < NODES; k++)
                atomic_store_explicit(&w->r->world->data[k][p], JUNK, memory_order_relaxed);
        }
}

static uint32_t some_live(struct steward_role *w, uint32_t but)
{
    for (;;) {
        uint32_t i = dice(&w->dice) % CONSUMERS, o = peek32(&w->r->world->live[i]);
        if (o != but && i + 1 != peek32(&w->r->world->idle) &&
            peek32(&w->r->world->state[o]) == WORKER_LIVE &&
            peek32(&w->r->world->known[o]) == WORKER_LIVE)
            return o;
    }
}

static void grant(struct steward_role *w, const struct need *n, uint32_t p)
{
    uint32_t owner[MAX_NODES];

    for (uint32_t k = 0; k < NODES; k++)
        owner[k] = some_live(w, 0);
    steward_grant(w->s, n->call, n->item, p, w->place[p].epoch, owner, now_ns());
}

static void serve(struct steward_role *w, const struct need *n)
{
    uint32_t p = place_of(w, n->expert), empty = place_of(w, EXPERTS);

    if (n->why == NEED_AGAIN && peek(&w->r->world->header[n->share][n->was.place]) != n->was.epoch)
        return; /* the place is being left: the other share will decline too */
    if (n->why != NEED_PLACE) {
        steward_give(w->s, n->call, n->item, n->share, some_live(w, n->was.outbox), n->was.place,
                     n->was.epoch, now_ns());
    } else if (p < SLABS) {
        grant(w, n, p);
    } else if (empty < SLABS) {
        seat(w, empty, n->expert);
        grant(w, n, empty);
        atomic_store_explicit(&w->r->world->entry[n->expert], ENTRY(empty, w->place[empty].epoch),
                              memory_order_release);
    } else if (now_ns() >
               w->next_leaving) { /* a free one comes soon, or its owner is late: another */
        w->next_leaving = now_ns() + 1000000;
        leave_some(w);
    }
}

static void know_workers(struct steward_role *w)
{
    for (uint32_t o = PROC_FIRST_WORKER; o < LIVES; o++) {
        uint32_t state = peek32(&w->r->world->state[o]);
        if (state == w->r->world->known[o])
            continue;
        steward_worker(w->s, o, w->r->box[o], (enum worker_state)state);
        atomic_store_explicit(&w->r->world->known[o], state, memory_order_release);
    }
}

static int steward_round(struct steward_role *w)
{
    struct need need[2 * ITEMS * NODES];
    struct err e = {0};
    uint64_t now = now_ns();
    size_t n;

    know_workers(w);
    if (steward_follow(w->s, now, &e) < 0)
        fail(&e);
    let_go(w);
    if (now > w->next_eviction) { /* unasked, so that owners find other headers */
        uint32_t p = dice(&w->dice) % SLABS;
        w->next_eviction = now + 1000000;
        if (w->place[p].expert < EXPERTS)
            begin_leaving(w, p);
    }
    n = steward_needs(w->s, now, w->r->deadline_ns, need, sizeof need / sizeof *need);
    for (size_t i = 0; i < n && i < sizeof need / sizeof *need; i++)
        serve(w, &need[i]);
    return n > 0;
}

static int steward_role_look(void *arg)
{
    struct steward_role *w = arg;

    if (peek32(&w->r->world->ended) || peek32(&w->r->world->step_wanted))
        return LOOK_FOUND;
    return steward_look(w->s);
}

static void steward_role(struct rig *r)
{
    struct steward_role w = {.r = r, .dice = 99};
    struct steward_config config = {.geo = &r->geo,
                                    .board = r->board,
                                    .bells = r->bells,
                                    .calls = r->calls,
                                    .amends = r->amends,
                                    .ring_calls = 1,
                                    .first = 1};
    struct err e = {0};
    uint32_t round = 0;

    if (steward_open(&config, &w.s, &e))
        fail(&e);
    for (uint32_t p = 0; p < SLABS; p++)
        w.place[p].expert = EXPERTS;
    while (!peek32(&r->world->ended)) {
        uint32_t on = peek32(&r->world->step_wanted);
        if (steward_round(&w))
            round = 0;
        atomic_store_explicit(&r->world->step_followed, on, memory_order_release);
        if (wait_round(&round, r->shared))
            continue;
        round = 0;
        if (on || w.n_leaving)
            continue; /* while a step is open it follows, and does not sleep */
        r->world->steward_sleeps++;
        r->world->steward_net_finds +=
            bell_sleep(&r->bells[PROC_STEWARD], &r->board->asleep_steward, steward_role_look, &w,
                       1) == BELL_NET; /* 1 ms: it also has deadlines to watch */
    }
    r->world->steward = *steward_counters(w.s);
    steward_close(w.s);
}
