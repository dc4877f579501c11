/* The steward's thread alone: this test is trunk, workers and pager, and so decides when a read ends and
 * when a share is stamped. A slab's "bytes" are the name of the expert that was read into it last. */
#define _GNU_SOURCE
#include "coordinator/supervise/paging.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "shm/amends.h"
#include "tests/test.h"

enum {
    LAYERS = 4,
    EXPERTS = 16,
    USED = 4,
    PAGER = PROC_FIRST_WORKER + 2,
    SLABS_MAX = LAYERS * EXPERTS,
    NOTHING = -1, /* what lies in a slab while it is written */
    PATIENCE = 2000, /* rounds in which nothing happens, at least a millisecond each at the end */
};

struct share { /* of the open call: the giving that this test's worker is at */
    uint64_t am, epoch;
    uint32_t place;
    int begun, done, own; /* own: the call's own giving is unanswered */
};
struct world {
    struct geometry g;
    struct board *board;
    struct bell *bells;
    struct calls *calls;
    struct amends *amends;
    struct tables *tables;
    struct orders *orders;
    struct pager_box *pager;
    struct outbox *box[PAGER + 1];
    _Atomic uint64_t disk_call;
    struct watch *watch;
    struct slab_plan plan;
    struct uses *uses;
    struct ahead *ahead;
    uint32_t cancelled; /* orders */
    struct model m; /* any that is no pack */
    struct pieces pieces;
    struct paging *paging;
    struct heat_keeper *heat;
    uint64_t raised[8]; /* orders that are to be demanded now */
    uint32_t n_raised;
    int lies[SLABS_MAX]; /* layer * EXPERTS + expert, NOTHING */
    struct order open[64];
    uint32_t n_open;
    uint64_t next_order;
    /* the open call */
    struct call call;
    struct call_item items[64];
    struct call_pair pairs[64];
    struct share share[64][MAX_NODES];
    uint64_t seed;
};

static uint32_t random_of(struct world *w, uint32_t n)
{
    w->seed = w->seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(w->seed >> 33) % n;
}

static void *zeroed(size_t bytes)
{
    void *p = aligned_alloc(64, round_up(bytes, 64));

    if (!p)
        abort();
    return memset(p, 0, bytes);
}

static void make_tables(struct world *w, const struct expert_layer *layer)
{
    struct geometry *g = &w->g;
    uint64_t entries = LAYERS * EXPERTS, at = 64, slabs = (uint64_t)g->n_nodes * g->n_slabs * 8;
    struct tables t = {.off_entry = at};

    t.off_header = at = round_up(at + entries * 8, 64);
    t.off_slab = at = round_up(at + slabs, 64);
    t.off_layer = at = round_up(at + slabs, 64);
    w->tables = zeroed(at + LAYERS * sizeof *layer);
    *w->tables = t;
    memcpy(table_layer(w->tables, 0), layer, LAYERS * sizeof *layer);
    for (uint32_t k = 0; k < g->n_nodes; k++)
        slab_offsets(&w->plan, layer, LAYERS, g->n_nodes, k, table_slab_off(w->tables, g, k, 0));
}

/* slabs: how many of the largest expert the budget holds. The last two layers' experts are larger. */
/* heat: of earlier worlds, in XDG_CACHE_HOME. */
static void world_open_heat(struct world *w, uint32_t n_nodes, uint32_t slabs, enum policy_kind policy, int heat)
{
    struct expert_layer layer[LAYERS] = {0};
    struct paging_config pc;
    struct slab_plan all;
    struct err e = {0};

    *w = (struct world){.next_order = 1, .seed = slabs * 8 + n_nodes};
    for (uint32_t l = 0; l < LAYERS; l++) {
        layer[l].n_experts = EXPERTS;
        layer[l].top_k = USED;
        for (int m = 0; m < N_MATS; m++)
            layer[l].m[m] = (struct expert_matrix){
                .rows = 16, .cols = 16, .row_bytes = l < 2 ? 1024 : 2048, .stride = 32768, .file_off = 4096};
    }
    CHECK_EQ(slab_plan(layer, LAYERS, n_nodes, UINT64_MAX, &all, &e), 0);
    CHECK_EQ(slab_plan(layer, LAYERS, n_nodes, all.need_one * slabs, &w->plan, &e), 0);
    w->g = (struct geometry){.n_nodes = n_nodes,
                             .n_layers = LAYERS,
                             .n_experts = EXPERTS,
                             .top_k = USED,
                             .n_embd = 16,
                             .n_ff = 16,
                             .max_tokens = 8,
                             .max_items = EXPERTS,
                             .max_pairs = 8 * USED,
                             .amend_slots = 128,
                             .order_slots = 16,
                             .acts_half = 4096,
                             .n_slabs = w->plan.n_slabs};
    w->board = zeroed(sizeof *w->board);
    w->bells = zeroed((PAGER + 1) * sizeof *w->bells);
    w->calls = zeroed(calls_bytes(&w->g));
    w->amends = zeroed(amends_bytes(&w->g));
    w->orders = zeroed(orders_bytes(&w->g));
    w->pager = zeroed(pager_box_bytes(&w->g));
    w->uses = zeroed(sizeof *w->uses);
    w->ahead = zeroed(sizeof *w->ahead);
    for (uint32_t k = 0; k < n_nodes; k++)
        w->box[PROC_FIRST_WORKER + k] = zeroed(outbox_bytes(&w->g));
    for (uint32_t i = 0; i < SLABS_MAX; i++)
        w->lies[i] = NOTHING;
    w->call.items = w->items;
    w->call.pairs = w->pairs;
    make_tables(w, layer);
    if (gguf_open("tests/golden/tiny/olmoe/model.gguf", &w->m.g, &e)) {
        printf("%s\n", e.msg);
        abort();
    }
    w->heat = heat ? heat_keeper_open(w->m.g, LAYERS, EXPERTS) : NULL;
    w->pieces = (struct pieces){.m = &w->m, .geo = &w->g, .tables = w->tables, .original = UINT32_MAX};
    pc = (struct paging_config){.geo = &w->g,
                                .board = w->board,
                                .bells = w->bells,
                                .calls = w->calls,
                                .amends = w->amends,
                                .tables = w->tables,
                                .orders = w->orders,
                                .pager = w->pager,
                                .pager_outbox = PAGER,
                                .outbox = w->box,
                                .disk_call = &w->disk_call,
                                .watch = &w->watch,
                                .pieces = &w->pieces,
                                .slabs = &w->plan,
                                .policy = policy,
                                .uses = w->uses,
                                 .heat = w->heat,
                                 .ahead = w->ahead};
    for (uint32_t k = 0; k < n_nodes; k++)
        pc.owner[k] = PROC_FIRST_WORKER + k;
    if (paging_start(&pc, &w->paging, &e)) {
        printf("%s\n", e.msg);
        abort();
    }
}

static void world_open(struct world *w, uint32_t n_nodes, uint32_t slabs, enum policy_kind policy)
{
    world_open_heat(w, n_nodes, slabs, policy, 0);
}

static void world_close(struct world *w)
{
    paging_stop(w->paging);
    heat_keeper_close(w->heat);
    gguf_close(w->m.g);
    free(w->board);
    free(w->bells);
    free(w->calls);
    free(w->amends);
    free(w->orders);
    free(w->pager);
    free(w->uses);
    free(w->ahead);
    free(w->tables);
    for (uint32_t k = 0; k < w->g.n_nodes; k++)
        free(w->box[PROC_FIRST_WORKER + k]);
}

static void ring(struct world *w)
{
    bell_ring(&w->bells[PROC_STEWARD], &w->board->asleep_steward);
}

/* ---- pager ---- */

static uint32_t slab_of(struct world *w, const struct order *o)
{
    uint32_t i = 0;

    while (i < w->g.n_slabs && *table_slab_off(w->tables, &w->g, 0, i) != o->piece[0].dst)
        i++;
    CHECK(i < w->g.n_slabs, "an order into no slab");
    return i;
}

/* A read that is told to be cancelled ends well as often as not. */
static void pager_control(struct world *w, const struct order *o)
{
    uint32_t i = 0;

    while (i < w->n_open && w->open[i].number != o->target)
        i++;
    order_done(&w->g, w->pager, o->number, ORDER_WHY_OK, 0);
    if (o->kind == ORDER_RAISE) {
        CHECK(o->prio == PRIO_DEMAND, "order %lu raises to %u", o->number, o->prio);
        w->raised[w->n_raised++ % 8] = o->target;
    }
    w->cancelled += o->kind == ORDER_CANCEL;
    if (i < w->n_open && o->kind == ORDER_RAISE)
        w->open[i].prio = o->prio;
    if (i < w->n_open && o->kind == ORDER_CANCEL && random_of(w, 2)) {
        order_done(&w->g, w->pager, o->target, ORDER_WHY_CANCELLED, 0);
        w->open[i] = w->open[--w->n_open];
    }
    ring(w);
}

/* Takes orders that are there; from then on their slabs hold nothing. Returns whether there was one. */
static int pager_take(struct world *w)
{
    int any = 0;

    while (w->n_open < 64 && order_take(&w->g, w->orders, w->next_order, &w->open[w->n_open])) {
        struct order o = w->open[w->n_open];
        w->next_order++;
        any = 1;
        if (o.kind != ORDER_READ) {
            pager_control(w, &o);
            continue;
        }
        w->lies[slab_of(w, &o)] = NOTHING;
        w->n_open++;
    }
    return any;
}

static void pager_answer(struct world *w, uint32_t which)
{
    struct order o = w->open[which];

    w->open[which] = w->open[--w->n_open];
    w->lies[slab_of(w, &o)] = (int)(o.layer * EXPERTS + o.expert);
    order_done(&w->g, w->pager, o.number, ORDER_WHY_OK, 0);
    ring(w);
}

/* ---- trunk ---- */

static int at_hand(struct world *w, uint32_t layer, uint32_t expert)
{
    return atomic_load_explicit(table_entry(w->tables, &w->g, layer, expert), memory_order_acquire) != 0;
}

/* One token (or a prompt: more experts than a token uses) of layer `layer` uses these. Returns how many
 * are not at hand. */
static uint32_t publish(struct world *w, uint32_t layer, const uint32_t *expert, uint32_t n)
{
    struct call_head *h = &w->call.head;
    uint32_t disk = 0;

    *h = (struct call_head){.seq = h->seq + 1, .layer = layer, .n_tokens = 8, .n_items = n, .n_pairs = n, .top_k = USED};
    uses_step(w->uses, 1);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t entry = atomic_load_explicit(table_entry(w->tables, &w->g, layer, expert[i]), memory_order_acquire);
        w->items[i] = (struct call_item){.expert = expert[i],
                                         .pair0 = i,
                                         .n_pairs = 1,
                                         .place = entry ? ENTRY_PLACE(entry) : PLACE_NONE,
                                         .epoch = ENTRY_EPOCH(entry)};
        w->pairs[i] = (struct call_pair){(uint16_t)(i / USED), (uint16_t)(i % USED)};
        disk += !entry;
        for (uint32_t k = 0; k < w->g.n_nodes; k++) {
            w->items[i].owner[k] = (uint16_t)(entry ? PROC_FIRST_WORKER + k : OWNER_DISK);
            w->share[i][k] = (struct share){.own = entry != 0, .place = w->items[i].place, .epoch = w->items[i].epoch};
        }
        uses_note(w->uses, layer, expert[i], 1);
    }
    call_publish(&w->g, w->calls, &w->call);
    if (disk)
        atomic_store_explicit(&w->disk_call, h->seq, memory_order_release);
    ring(w);
    return disk;
}

static int complete(struct world *w)
{
    for (uint32_t i = 0; i < w->call.head.n_items; i++)
        for (uint32_t k = 0; k < w->g.n_nodes; k++)
            if (!w->share[i][k].done)
                return 0;
    return 1;
}

/* ---- workers ---- */

/* What this share is to be computed with now: 0: nothing, or it is done. */
static int giving(struct world *w, uint32_t i, uint32_t k)
{
    struct share *s = &w->share[i][k];
    uint32_t box;
    uint64_t am = present_giving(&w->g, w->amends, w->call.head.seq, i, k, w->items[i].owner[k], &box);
    struct amendment a = {0};

    if (s->done)
        return 0;
    if (am > s->am) {
        if (amend_copy(&w->g, w->amends, am, &a) != RING_TAKEN)
            return 0;
        *s = (struct share){.am = am, .epoch = a.epoch, .place = a.place};
        return 1;
    }
    return s->own || (s->am && !s->done && s->place != PLACE_NONE);
}

static int header_good(struct world *w, uint32_t k, const struct share *s)
{
    return atomic_load_explicit(table_header(w->tables, &w->g, k, s->place), memory_order_acquire) == s->epoch;
}

/* All of the call's own givings of a node are answered: its owner stamp. */
static void owner_stamps(struct world *w, uint32_t k)
{
    int declined = 0;

    for (uint32_t i = 0; i < w->call.head.n_items; i++) {
        if (w->share[i][k].own)
            return;
        declined |= w->items[i].owner[k] != OWNER_DISK && w->share[i][k].am;
        declined |= w->items[i].owner[k] != OWNER_DISK && !w->share[i][k].done;
    }
    owner_stamp(w->box[PROC_FIRST_WORKER + k], w->call.head.seq, declined);
}

static void answer(struct world *w, uint32_t i, uint32_t k, enum stamp_kind kind)
{
    struct share *s = &w->share[i][k];
    struct outbox *o = w->box[PROC_FIRST_WORKER + k];

    if (s->am || kind == STAMP_DECLINED)
        item_stamp(&w->g, o, w->call.head.seq, i, k, s->am, kind);
    s->done = kind == STAMP_DONE;
    s->own = 0;
    s->begun = 0;
    if (kind == STAMP_DECLINED)
        s->place = PLACE_NONE;
    if (!s->am)
        owner_stamps(w, k);
    ring(w);
}

/* One step of one share: it begins (compares with the header), or ends with the bytes that must have
 * stood. Returns whether it did anything. */
static int work(struct world *w, uint32_t i, uint32_t k)
{
    struct share *s = &w->share[i][k];
    int want = (int)(w->call.head.layer * EXPERTS + w->items[i].expert);

    if (!giving(w, i, k))
        return 0;
    if (!s->begun && !header_good(w, k, s)) {
        answer(w, i, k, STAMP_DECLINED);
        return 1;
    }
    CHECK(w->lies[s->place] == want, "call %llu, %s: slab %u holds %d, not %d", (unsigned long long)w->call.head.seq,
          s->begun ? "end" : "begin", s->place, w->lies[s->place], want);
    if (s->begun)
        answer(w, i, k, STAMP_DONE);
    s->begun = 1;
    return 1;
}

static void retire(struct world *w)
{
    for (uint32_t k = 0; k < w->g.n_nodes; k++)
        item_stamps_clear(&w->g, w->box[PROC_FIRST_WORKER + k], w->call.head.seq);
    call_retire(&w->g, w->calls, w->call.head.seq);
    ring(w);
}

static void pause_a_little(uint32_t round)
{
    if (round < PATIENCE / 2)
        sched_yield();
    else
        usleep(1000);
}

/* Lets everybody work until the call is complete; in any order if `shuffle`. */
static void finish(struct world *w, int shuffle)
{
    uint32_t idle = 0;

    while (!complete(w) && idle < 2 * PATIENCE) {
        int any = pager_take(w);
        if (w->n_open && (!shuffle || !random_of(w, 3))) {
            pager_answer(w, shuffle ? random_of(w, w->n_open) : 0);
            any = 1;
        }
        for (uint32_t i = 0; i < w->call.head.n_items; i++)
            for (uint32_t k = 0; k < w->g.n_nodes; k++)
                if (!shuffle || !random_of(w, 3))
                    any |= work(w, i, k);
        idle = any ? 0 : idle + 1;
        pause_a_little(idle);
    }
    CHECK(complete(w), "call %llu never ends", (unsigned long long)w->call.head.seq);
    retire(w);
}

/* Waits until n orders are open; a little longer, to see whether there come more. */
static uint32_t orders_open(struct world *w, uint32_t n)
{
    for (uint32_t round = 0; round < 2 * PATIENCE && w->n_open < n; round++) {
        pager_take(w);
        pause_a_little(round);
    }
    for (uint32_t round = PATIENCE / 2; round < PATIENCE / 2 + 10; round++) {
        pager_take(w);
        pause_a_little(round);
    }
    return w->n_open;
}

/* ---- tests ---- */

/* A layer's absent experts are all asked for at once, before any of them has come and before the ones
 * that are there are computed; these are computed meanwhile. */
static void overlap(uint32_t n_nodes)
{
    const uint32_t first[] = {0, 1, 2, 3}, second[] = {2, 3, 4, 5}, third[] = {0, 5, 6, 7};
    struct paging_stats s;
    struct world w;

    world_open(&w, n_nodes, 40, POLICY_HEAT);
    CHECK_EQ(publish(&w, 0, first, 4), 4);
    CHECK_EQ(orders_open(&w, 4), 4);
    finish(&w, 0);

    CHECK_EQ(publish(&w, 0, second, 4), 2);
    CHECK_EQ(orders_open(&w, 2), 2);
    for (uint32_t i = 0; i < 2; i++) /* no read has ended */
        for (uint32_t k = 0; k < n_nodes; k++) {
            CHECK(work(&w, i, k) && work(&w, i, k) && w.share[i][k].done, "item %u was not given", i);
            CHECK(!work(&w, 2 + i, k), "an item whose expert is being read was given");
        }
    finish(&w, 0);

    CHECK_EQ(publish(&w, 0, third, 4), 2);
    CHECK_EQ(orders_open(&w, 2), 2);
    pager_answer(&w, w.open[0].expert == 7 ? 0 : 1); /* the last one first: it does not wait for the other */
    for (uint32_t round = 0; round < 2 * PATIENCE && !giving(&w, 3, 0); round++)
        pause_a_little(round);
    CHECK(giving(&w, 3, 0) && !giving(&w, 2, 0), "the expert that came is not granted at once");
    finish(&w, 0);

    paging_stats(w.paging, &s);
    CHECK_EQ(s.most_open, 4);
    CHECK_EQ(s.reads, 8);
    CHECK_EQ(s.moves, 8);
    CHECK_EQ(s.residents, 8);
    CHECK_EQ(s.lost_uses, 0);
    CHECK(s.places + s.spare == w.g.n_slabs && s.spare >= 2, "%u places, %u spare", s.places, s.spare);

    CHECK_EQ(publish(&w, 0, third, 4), 0); /* everything is there: nothing is read */
    finish(&w, 0);
    CHECK_EQ(orders_open(&w, 1), 0);
    world_close(&w);
}

/* The next start reads what was used before, behind whatever is demanded; what is demanded while it is
 * being read so is not read twice, but raised, once. */
static void warm_start(uint32_t n_nodes)
{
    const uint32_t before[] = {0, 1, 2, 3}, now[] = {2, 3, 4, 5};
    char dir[] = "/tmp/conclave-warm-XXXXXX", command[80];
    uint32_t warm = 0, found = 0;
    struct paging_stats s;
    struct world w;

    if (!mkdtemp(dir))
        abort();
    setenv("XDG_CACHE_HOME", dir, 1);
    world_open_heat(&w, n_nodes, 40, POLICY_HEAT, 1);
    CHECK_EQ(publish(&w, 0, before, 4), 4);
    finish(&w, 0);
    paging_stats(w.paging, &s);
    CHECK_EQ(s.warm_reads, 0);
    world_close(&w);

    world_open_heat(&w, n_nodes, 40, POLICY_HEAT, 1);
    CHECK_EQ(orders_open(&w, 4), 4);
    for (uint32_t i = 0; i < w.n_open; i++)
        warm += w.open[i].prio == PRIO_WARM && w.open[i].expert < 4;
    CHECK_EQ(warm, 4);
    CHECK_EQ(publish(&w, 0, now, 4), 4);
    CHECK_EQ(orders_open(&w, 6), 6);
    for (uint32_t round = 0; round < 2 * PATIENCE && w.n_raised < 2; round++) {
        pager_take(&w);
        pause_a_little(round);
    }
    CHECK_EQ(w.n_raised, 2);
    for (uint32_t i = 0; i < w.n_open; i++)
        for (uint32_t k = 0; k < 2; k++)
            found += w.open[i].number == w.raised[k] && (w.open[i].expert == 2 || w.open[i].expert == 3);
    CHECK_EQ(found, 2);
    finish(&w, 0);
    while (w.n_open) /* the two that nobody waited for */
        pager_answer(&w, 0);
    for (uint32_t round = 0; round < 2 * PATIENCE && (paging_stats(w.paging, &s), s.warm); round++)
        pause_a_little(round);
    CHECK_EQ(s.warm, 0);
    CHECK_EQ(s.warm_reads, 4);
    CHECK_EQ(s.warm_raised, 2);
    CHECK_EQ(s.reads, 2);
    CHECK(at_hand(&w, 0, 0) && at_hand(&w, 0, 1), "what was read by heat is not at hand");
    world_close(&w);
    snprintf(command, sizeof command, "rm -r %s", dir);
    CHECK_EQ(system(command), 0);
    unsetenv("XDG_CACHE_HOME");
}

/* Few slabs: a place that is named and not stamped stands, however many others wait. */
static void named_stands(void)
{
    const uint32_t first[] = {0}, all[] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct world w;
    uint32_t place, done = 0;

    world_open(&w, 1, 2, POLICY_LRU);
    CHECK(w.g.n_slabs > 1 && w.g.n_slabs < 6 && w.plan.spare[w.plan.pools.n - 1] == 1, "%u slabs", w.g.n_slabs);
    publish(&w, 0, first, 1);
    finish(&w, 0);
    CHECK(at_hand(&w, 0, 0), "the only expert has left");
    CHECK_EQ(publish(&w, 0, all, 8), 7);
    place = w.items[0].place;
    for (uint32_t round = 0; round < 2 * PATIENCE && done < 7; round++) { /* through the other slabs */
        pager_take(&w);
        for (uint32_t i = 0; i < w.n_open; i++)
            CHECK(slab_of(&w, &w.open[i]) != place, "a named slab is read into");
        if (w.n_open)
            pager_answer(&w, 0);
        for (uint32_t x = 1; x < 8; x++)
            if (work(&w, x, 0) && w.share[x][0].done)
                round = 0, done++;
        pause_a_little(round);
    }
    CHECK(done == 7 && !w.share[0][0].done, "%u of 7 done beside an item that is not", done);
    finish(&w, 0);
    world_close(&w);
}

static void foresee(struct world *w, uint32_t layer, const uint32_t *expert, uint32_t n)
{
    ahead_tell(w->ahead, layer, expert, n);
    ring(w);
}

/* What is foreseen is read behind what is called for; a call that comes to wait for it raises the read,
 * one that finds it there counts it as used, one of another layer drops it. */
static void foreseen(void)
{
    const uint32_t first[] = {0, 1}, second[] = {4, 5}, third[] = {8, 9};
    struct paging_stats s;
    struct world w;

    world_open(&w, 1, 40, POLICY_HEAT);
    publish(&w, 0, first, 2);
    CHECK_EQ(orders_open(&w, 2), 2);
    foresee(&w, 1, second, 2);
    CHECK_EQ(orders_open(&w, 4), 4);
    CHECK(w.open[0].prio == PRIO_DEMAND && w.open[2].prio == PRIO_PREFETCH && w.open[3].prio == PRIO_PREFETCH);
    CHECK(w.open[2].layer == 1 && w.open[2].expert == 4 && w.open[3].expert == 5);
    pager_answer(&w, 3);
    finish(&w, 0);
    for (uint32_t round = 0; round < 2 * PATIENCE && !at_hand(&w, 1, 5); round++)
        pause_a_little(round);
    CHECK(at_hand(&w, 1, 5), "what was read ahead is not at hand");
    publish(&w, 1, second, 2);
    finish(&w, 0);
    foresee(&w, 2, third, 2);
    CHECK_EQ(orders_open(&w, 2), 2);
    publish(&w, 2, third, 2);
    orders_open(&w, 2);
    CHECK_EQ(w.n_raised, 2);
    CHECK(w.n_open == 2 && w.open[0].prio == PRIO_DEMAND && w.open[1].prio == PRIO_DEMAND);
    finish(&w, 0);
    foresee(&w, 0, third, 2);
    CHECK_EQ(orders_open(&w, 2), 2);
    foresee(&w, 1, third, 0);
    orders_open(&w, 3);
    CHECK_EQ(w.cancelled, 2);
    while (w.n_open)
        pager_answer(&w, 0);
    publish(&w, 1, first, 2);
    finish(&w, 0);
    paging_stats(w.paging, &s);
    CHECK(s.ahead_used + s.ahead_late == 4 && s.ahead_late >= 2, "%llu used, %llu late",
          (unsigned long long)s.ahead_used, (unsigned long long)s.ahead_late);
    world_close(&w);
}

/* Every size of cache, policy and number of nodes; calls of a token and of prompts that name every
 * expert; reads and stamps in any order. */
static void stress(uint32_t n_nodes, uint32_t slabs, enum policy_kind policy)
{
    struct paging_stats s;
    struct world w;

    world_open(&w, n_nodes, slabs, policy);
    for (uint32_t n = 0; n < 40; n++) {
        uint32_t expert[EXPERTS], count = 0, every = random_of(&w, 8) == 0;
        for (uint32_t x = 0; x < EXPERTS; x++)
            if (every || (count < USED && random_of(&w, EXPERTS) < 5))
                expert[count++] = x;
        if (!count)
            expert[count++] = n % EXPERTS;
        publish(&w, n % LAYERS, expert, count);
        for (uint32_t i = 0; i < USED; i++)
            expert[i] = random_of(&w, EXPERTS);
        if (random_of(&w, 4))
            foresee(&w, (n + random_of(&w, 2)) % LAYERS, expert, USED);
        finish(&w, 1);
    }
    paging_stats(w.paging, &s);
    CHECK(s.residents <= s.places && s.reads + s.ahead_used + s.ahead_late >= s.residents, "%u residents, %u places, %llu reads", s.residents,
          s.places, (unsigned long long)s.reads);
    world_close(&w);
}

int main(void)
{
    overlap(1);
    overlap(2);
    warm_start(1);
    warm_start(2);
    named_stands();
    foreseen();
    for (uint32_t n_nodes = 1; n_nodes <= 2; n_nodes++)
        for (int policy = POLICY_HEAT; policy <= POLICY_LFU; policy++) {
            static const uint32_t slabs[] = {1, 2, 3, 6, 20, 44};
            for (uint32_t i = 0; i < sizeof slabs / sizeof *slabs; i++)
                stress(n_nodes, slabs[i], (enum policy_kind)policy);
        }
    return test_end();
}
