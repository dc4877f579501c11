/* The state machine of shares by replay: the test is trunk, steward and the other nodes, and the
 * team works by magic (nothing reads a row here). */
#include "cpu-worker/share.h"

#include "cpu-worker/test_world.h"

#define ME PROC_FIRST_WORKER
#define OTHER (PROC_FIRST_WORKER + 1)

static const struct world_layer LAYER = {{W_F32, W_F32, W_F32}, 16, 16, 0, 0, 4096};
static struct world w;
static struct maps m;
static struct shares s;
static struct err e;

static void begin_behind(uint32_t n_nodes, uint64_t calls, uint64_t amends)
{
    memset(&e, 0, sizeof e);
    CHECK(!maps_take(&m, &w.child, &e), "%s", e.msg);
    CHECK(!shares_init(&s, &m, calls, amends, &e), "%s", e.msg);
    CHECK_EQ(m.g.n_nodes, n_nodes);
}
static void begin(uint32_t n_nodes)
{
    world_make(&w, n_nodes, n_nodes > 1 ? n_nodes : 2, &LAYER, 1);
    begin_behind(n_nodes, 0, 0);
}
static void end(void)
{
    shares_drop(&s);
    maps_drop(&m);
    world_drop(&w);
}

/* A call of n items, experts and places 0 .. n-1 (epoch of the header); one node: all of them ours.
 */
static void call(uint64_t n, uint32_t n_items)
{
    world_call(&w, n, 0, 1);
    for (uint32_t i = 0; i < n_items; i++)
        world_item(&w, i, i, atomic_load(table_header(w.tables, &w.g, 0, i)), i % w.g.top_k, 0, 1);
}
static const struct pass *next(void)
{
    int declined;

    CHECK(!shares_follow(&s, &e), "%s", e.msg);
    return shares_next(&s, &declined);
}
static uint64_t owner(uint64_t n)
{
    return atomic_load(&w.box[ME]->owner[n % CALL_SLOTS]);
}
static enum stamp_kind answered(uint64_t n, uint32_t item, uint32_t k, uint64_t am)
{
    return giving_answer(&w.g, w.box[ME], n, item, k, am);
}
static void load_all(void)
{
    for (uint32_t i = 0; i < WORLD_SLABS; i++)
        world_load(&w, 0, i, i);
}

static void one_node(void)
{
    const struct pass *p;

    begin(1);
    load_all();
    CHECK(!next(), "a pass from nothing");
    call(1, 3);
    w.call.items[1].owner[0] = OTHER;
    world_publish(&w);
    p = next();
    CHECK(p && p->n == 2 && p->stage_one && p->stage_two, "both of our items, both stages");
    CHECK(p && p->item[0].item == 0 && p->item[1].item == 2, "items in order");
    CHECK_EQ(owner(1), 0);
    shares_done(&s, p);
    CHECK_EQ(owner(1), 2);
    CHECK_EQ(answered(1, 0, 0, 0), STAMP_DONE);
    CHECK(!next(), "made once");

    call(2, 1); /* nothing of ours: no stamp, no pass */
    w.call.items[0].owner[0] = OTHER;
    world_publish(&w);
    CHECK(!next(), "another's call");
    CHECK_EQ(owner(2), 0);
    CHECK_EQ(atomic_load(&w.box[ME]->cursor), 2);
    CHECK_EQ(atomic_load(&w.box[ME]->count.calls), 1);
    CHECK_EQ(atomic_load(&w.box[ME]->count.items), 2);
    end();
}

static void declines(void)
{
    const struct pass *p;
    uint64_t a, epoch;

    begin(1);
    load_all();
    call(1, 2);
    world_mark(&w, 1);
    world_publish(&w);
    p = next();
    CHECK(p && p->n == 1 && p->item[0].item == 0, "item 1 is declined, item 0 made");
    CHECK_EQ(STAMP_KIND(item_stamp_of(&w.g, w.box[ME], 1, 1, 0)), STAMP_DECLINED);
    CHECK_EQ(owner(1), 0);
    shares_done(&s, p);
    CHECK_EQ(owner(1), 3); /* flagged */
    CHECK_EQ(answered(1, 1, 0, 0), STAMP_DECLINED);
    CHECK_EQ(answered(1, 0, 0, 0), STAMP_DONE);

    epoch = world_load(&w, 0, 1, 4);
    a = world_amend(&w, 1, 1, 0, ME, 4, epoch);
    p = next();
    CHECK(p && p->n == 1 && p->item[0].item == 1 && p->item[0].place == 4, "in its new place");
    shares_done(&s, p);
    CHECK_EQ(answered(1, 1, 0, a), STAMP_DONE);
    CHECK_EQ(answered(1, 1, 0, 0), STAMP_DONE); /* the row is there, whoever asks */
    CHECK_EQ(atomic_load(&w.box[ME]->count.amended), 1);
    CHECK_EQ(atomic_load(&w.box[ME]->count.declined), 1);

    /* given again: the row is right, so it is stamped and not made */
    a = world_amend(&w, 1, 1, 0, ME, 4, epoch);
    CHECK(!next(), "made twice");
    CHECK_EQ(answered(1, 1, 0, a), STAMP_DONE);

    /* every item declined */
    call(2, 1);
    world_mark(&w, 0);
    world_publish(&w);
    CHECK(!next(), "nothing can be made");
    CHECK_EQ(owner(2), 5);
    end();
}

static void amended_while_open(void)
{
    const struct pass *p;
    uint64_t a1, a2, epoch;

    begin(1);
    load_all();
    call(1, 1);
    w.call.items[0].owner[0] = OTHER;
    world_publish(&w);
    epoch = atomic_load(table_header(w.tables, &w.g, 0, 0));
    a1 = world_amend(&w, 1, 0, 0, ME, 3, atomic_load(table_header(w.tables, &w.g, 0, 3)));
    CHECK(!shares_follow(&s, &e), "%s", e.msg);
    a2 = world_amend(&w, 1, 0, 0, ME, 0, epoch);
    CHECK(!shares_follow(&s, &e), "%s", e.msg);
    /* the earlier place is free at once, the later giving is open */
    CHECK_EQ(answered(1, 0, 0, a1), STAMP_DECLINED);
    p = next();
    CHECK(p && p->n == 1 && p->item[0].place == 0, "the later giving alone");
    shares_done(&s, p);
    CHECK_EQ(answered(1, 0, 0, a2), STAMP_DONE);
    CHECK(giving_over(&w.g, w.box[ME], 1, 0, 0, a1), "both are over");
    CHECK_EQ(owner(1), 0); /* the call itself gave us nothing */

    /* the call's own giving and an amendment of the same share, seen in one look: made once, in the
     * amendment's place, and both are answered */
    call(2, 2);
    world_publish(&w);
    a1 = world_amend(&w, 2, 0, 0, ME, 4, world_load(&w, 0, 0, 4));
    p = next();
    CHECK(p && p->n == 2, "two shares");
    CHECK(p && p->item[0].place == 4, "place %u", p ? p->item[0].place : 99);
    shares_done(&s, p);
    CHECK_EQ(answered(2, 0, 0, a1), STAMP_DONE);
    CHECK_EQ(owner(2), 4);

    /* the amendment seen before its call, which was published between the two looks */
    call(3, 2);
    world_publish(&w);
    a1 = world_amend(&w, 3, 0, 0, ME, 3, world_load(&w, 0, 0, 3));
    s.consumer.next_call++;
    CHECK(!shares_follow(&s, &e), "%s", e.msg);
    s.consumer.next_call--;
    p = next();
    CHECK(p && p->n == 2 && p->item[0].place == 3 && p->item[1].place == 1,
          "the newer giving counts");
    shares_done(&s, p);
    CHECK_EQ(answered(3, 0, 0, a1), STAMP_DONE);
    CHECK_EQ(owner(3), 6);

    /* an amendment of a retired call is nothing to do */
    call(4, 1);
    w.call.items[0].owner[0] = OTHER;
    world_publish(&w);
    world_amend(&w, 4, 0, 0, ME, 0, epoch);
    call_retire(&w.g, w.calls, 4);
    CHECK(!next(), "retired");
    end();
}

static void retired_and_late(void)
{
    const struct pass *p;

    begin(1);
    load_all();
    call(1, 1);
    world_publish(&w);
    CHECK(!shares_follow(&s, &e), "%s", e.msg);
    call_retire(&w.g, w.calls,
                1); /* somebody else made it; the half of the arenas goes to call 3 */
    for (uint64_t n = 2; n <= 3; n++) {
        call(n, 1);
        world_publish(&w);
    }
    p = next();
    CHECK(p && p->call->head.seq == 2, "the oldest open call");
    shares_done(&s, p);
    CHECK_EQ(owner(1), 0);
    p = next();
    CHECK(p && p->call->head.seq == 3, "then the next");

    /* stopped in the middle of call 3 for many calls: it may stamp that one, and finds the ring
     * again */
    for (uint64_t n = 4; n < 40; n++) {
        call_retire(&w.g, w.calls, n - 1);
        call(n, 1);
        world_publish(&w);
    }
    shares_done(&s, p);
    CHECK_EQ(owner(3), 0);
    p = next();
    CHECK(p && p->call->head.seq == 39, "call %llu",
          p ? (unsigned long long)p->call->head.seq : 0ull);
    shares_done(&s, p);
    CHECK_EQ(owner(39), 78);
    CHECK(!next(), "nothing is left");
    end();
}

/* A replacement: behind both heads, but an amendment may name an older call that is open. */
static void replacement(void)
{
    const struct pass *p;
    uint64_t a;

    begin(1);
    shares_drop(&s);
    maps_drop(&m);
    load_all();
    call(1, 1);
    world_publish(&w); /* ours by number, but before our time */
    begin_behind(1, 1, 0);
    CHECK(!next(), "a call from before");
    a = world_amend(&w, 1, 0, 0, ME, 0, atomic_load(table_header(w.tables, &w.g, 0, 0)));
    p = next();
    CHECK(p && p->n == 1 && p->call->head.seq == 1, "given by the amendment");
    shares_done(&s, p);
    CHECK_EQ(answered(1, 0, 0, a), STAMP_DONE);
    CHECK_EQ(owner(1), 0);
    end();
}

static void two_nodes(void)
{
    const struct pass *p;
    uint64_t a, epoch;

    begin(2);
    load_all();
    call(1, 2);
    world_publish(&w);
    p = next();
    CHECK(p && p->n == 2 && p->stage_one && !p->stage_two, "stage one of both");
    CHECK(!staged(&w.g, w.box[ME], 1, 0, 0), "stamped too early");
    shares_done(&s, p);
    CHECK(staged(&w.g, w.box[ME], 1, 0, 0) && staged(&w.g, w.box[ME], 1, 1, 0), "stage stamps");
    CHECK(!next(), "the other node has not staged");
    CHECK_EQ(shares_look(&s), LOOK_NOTHING);
    stage_stamp(&w.g, w.box[OTHER], 1, 1, 1);
    CHECK_EQ(shares_look(&s), LOOK_RUNG);
    p = next();
    CHECK(p && p->n == 1 && p->item[0].item == 1 && !p->stage_one && p->stage_two,
          "stage two of one");
    CHECK(p && p->item[0].inter[0] == outbox_inter(&w.g, w.box[ME], 1) &&
              p->item[0].inter[1] == outbox_inter(&w.g, w.box[OTHER], 1),
          "who made which columns");
    shares_done(&s, p);
    CHECK_EQ(owner(1), 0);

    /* share 1 of item 0 comes to us: both stages of it, here */
    epoch = atomic_load(table_header(w.tables, &w.g, 1, 0));
    a = world_amend(&w, 1, 0, 1, ME, 0, epoch);
    p = next();
    CHECK(p && p->n == 1 && p->item[0].share == 1 && p->stage_one,
          "stage one of what we took over");
    shares_done(&s, p);
    p = next();
    CHECK(p && p->n == 2 && p->stage_two, "then both shares");
    CHECK(p && p->item[0].inter[1] == outbox_inter(&w.g, w.box[ME], 1), "its columns are here");
    shares_done(&s, p);
    CHECK_EQ(owner(1), 2);
    CHECK_EQ(answered(1, 0, 1, a), STAMP_DONE);
    end();
}

static void waiting_node(void)
{
    uint32_t bell;
    const struct pass *p;
    uint64_t a, epoch;

    begin(3);
    load_all();
    call(1, 1);
    world_publish(&w);
    shares_done(&s, next());
    stage_stamp(&w.g, w.box[OTHER], 1, 0, 1);
    stage_stamp(&w.g, w.box[OTHER + 1], 0, 0, 2); /* of another call */
    CHECK(!next(), "one of two is not enough");

    /* share 2 has a new owner: the former one's stamp counts no more */
    world_amend(&w, 1, 0, 2, OTHER, 0, atomic_load(table_header(w.tables, &w.g, 2, 0)));
    stage_stamp(&w.g, w.box[OTHER + 1], 1, 0, 2);
    CHECK(!next(), "the former owner's stage stamp");

    /* the place is marked: declined while it waits, stage one stays good */
    world_mark(&w, 0);
    CHECK_EQ(shares_look(&s), LOOK_FOUND);
    CHECK(!next(), "it waits no more");
    CHECK_EQ(owner(1), 3);
    CHECK_EQ(answered(1, 0, 0, 0), STAMP_DECLINED);

    epoch = world_load(&w, 0, 0, 4);
    atomic_store(&w.box[OTHER]->asleep, 1);
    a = world_amend(&w, 1, 0, 0, ME, 4, epoch);
    bell = atomic_load(&w.bells[OTHER].word);
    CHECK(!next(), "staged already, and the others have not");
    CHECK_EQ(atomic_load(&w.bells[OTHER].word), bell + 1); /* it may wait for that stage stamp */
    stage_stamp(&w.g, w.box[OTHER], 1, 0, 2);
    p = next();
    CHECK(p && p->n == 1 && p->stage_two && !p->stage_one && p->item[0].place == 4, "stage two");
    shares_done(&s, p);
    CHECK_EQ(answered(1, 0, 0, a), STAMP_DONE);

    /* two calls in flight: stage one of the second although the first waits */
    call(2, 1);
    world_publish(&w);
    call(3, 1);
    world_publish(&w);
    world_load(&w, 0, 0, 0);
    w.call.items[0].epoch = w.epoch;
    p = next();
    CHECK(!p, "their place holds something else");
    CHECK_EQ(owner(2), 5);
    call_retire(&w.g, w.calls, 2);
    call_retire(&w.g, w.calls, 3);
    for (uint64_t n = 4; n <= 5; n++) {
        call(n, 1);
        world_publish(&w);
    }
    for (uint64_t n = 4; n <= 5; n++) {
        p = next();
        CHECK(p && p->stage_one && p->call->head.seq == n, "stage one of call %u", (unsigned)n);
        shares_done(&s, p);
    }
    CHECK(!next(), "both wait");
    stage_stamp(&w.g, w.box[OTHER], 5, 0, 1);
    stage_stamp(&w.g, w.box[OTHER + 1], 5, 0, 2);
    p = next();
    CHECK(p && p->stage_two && p->call->head.seq == 5, "the second call is ready first");
    call_retire(&w.g, w.calls, 4);
    shares_done(&s, p);
    CHECK_EQ(shares_look(&s), LOOK_FOUND); /* call 4 has gone and wants to be dropped */
    CHECK(!next(), "retired");
    CHECK_EQ(shares_look(&s), LOOK_NOTHING);
    end();
}

/* The first slot's number comes again after 8 calls; a stamp of the earlier call must not count. */
static void rings_and_wraps(void)
{
    const struct pass *p;

    begin(2);
    load_all();
    for (uint64_t n = 1; n <= 20; n++) {
        uint32_t trunk = atomic_load(&w.bells[PROC_TRUNK].word);
        uint32_t steward = atomic_load(&w.bells[PROC_STEWARD].word);
        uint32_t other = atomic_load(&w.bells[OTHER].word);
        atomic_store(&w.calls->asleep, 1);
        atomic_store(&w.board->asleep_steward, 1);
        atomic_store(&w.box[OTHER]->asleep, 1);
        call(n, 2);
        world_publish(&w);
        other = atomic_load(&w.bells[OTHER].word);
        p = next();
        CHECK(p && p->n == 2 && p->stage_one, "call %u: %u shares", (unsigned)n, p ? p->n : 0);
        shares_done(&s, p);
        CHECK_EQ(atomic_load(&w.bells[OTHER].word), other + 1); /* once for both stamps */
        CHECK_EQ(atomic_load(&w.bells[PROC_TRUNK].word), trunk);
        CHECK(!next(), "call %u: an old stage stamp counts", (unsigned)n);
        stage_stamp(&w.g, w.box[OTHER], n, 0, 1);
        stage_stamp(&w.g, w.box[OTHER], n, 1, 1);
        p = next();
        CHECK(p && p->n == 2 && p->stage_two, "stage two");
        shares_done(&s, p);
        CHECK_EQ(owner(n), 2 * n);
        CHECK_EQ(atomic_load(&w.bells[PROC_TRUNK].word), trunk + 1);
        CHECK_EQ(atomic_load(&w.bells[PROC_STEWARD].word), steward); /* nothing for it */
        CHECK_EQ(atomic_load(&w.box[ME]->ringing) % 2, 0);
        call_retire(&w.g, w.calls, n);
    }
    end();
}

static void refused(void (*spoil)(void), const char *says)
{
    begin(1);
    load_all();
    call(1, 2);
    spoil();
    call_publish(&w.g, w.calls, &w.call);
    CHECK(shares_follow(&s, &e) == -EPROTO, "taken: %s", says);
    CHECK(strstr(e.msg, says), "'%s' does not say '%s'", e.msg, says);
    end();
}
static void bad_layer(void)
{
    w.call.head.layer = 1;
}
static void bad_place(void)
{
    w.call.items[1].place = WORLD_SLABS;
}
static void bad_expert(void)
{
    w.call.items[0].expert = 1000;
}
static void bad_pairs(void)
{
    w.call.items[0].n_pairs = 2; /* its own and item 1's */
}
static void no_pairs(void)
{
    w.call.items[0].n_pairs = 0;
}
static void bad_token(void)
{
    w.call.pairs[1].token = 1;
}
static void bad_acts(void)
{
    w.call.head.acts = CALLS_IN_FLIGHT * w.g.acts_half - 4;
}
static void bad_slab(void)
{
    *table_slab_off(w.tables, &w.g, 0, 1) = WORLD_SLABS * WORLD_SLAB_BYTES - 8;
}

/* A card: both stages in one pass whatever the nodes, and nobody's stamp is waited for; whoever gets a sister
 * share finds a stage stamp for what the card made. */
static void whole(void)
{
    const struct pass *p;
    uint64_t a, epoch;

    begin(2);
    s.whole = 1;
    load_all();
    call(1, 2);
    for (int i = 0; i < 2; i++)
        w.call.items[i].owner[0] = w.call.items[i].owner[1] = ME;
    w.call.items[1].owner[0] = OTHER;
    world_publish(&w);
    p = next();
    CHECK(p && p->n == 3 && p->stage_one && p->stage_two, "three shares, both stages");
    CHECK(!staged(&w.g, w.box[ME], 1, 1, 1), "stamped too early");
    shares_done(&s, p);
    CHECK_EQ(owner(1), 2);
    CHECK(staged(&w.g, w.box[ME], 1, 0, 0) && staged(&w.g, w.box[ME], 1, 0, 1) && staged(&w.g, w.box[ME], 1, 1, 1),
          "stage stamps of what was made");
    CHECK(!staged(&w.g, w.box[ME], 1, 1, 0), "a stage stamp of another's share");
    CHECK(!next(), "made once");
    epoch = atomic_load(table_header(w.tables, &w.g, 0, 1));
    a = world_amend(&w, 1, 1, 0, ME, 1, epoch);
    p = next();
    CHECK(p && p->n == 1 && p->item[0].item == 1 && p->item[0].share == 0 && p->stage_one && p->stage_two,
          "one share alone, by an amendment");
    shares_done(&s, p);
    CHECK_EQ(answered(1, 1, 0, a), STAMP_DONE);
    CHECK_EQ(shares_look(&s), LOOK_NOTHING);
    end();
}

int main(void)
{
    one_node();
    whole();
    declines();
    amended_while_open();
    retired_and_late();
    replacement();
    two_nodes();
    waiting_node();
    rings_and_wraps();
    refused(bad_layer, "layer 1");
    refused(bad_place, "place 5");
    refused(bad_expert, "expert 1000");
    refused(bad_pairs, "3 pairs, the call has 2");
    refused(no_pairs, "0 pairs");
    refused(bad_token, "token 1");
    refused(bad_acts, "outside of their arena");
    refused(bad_slab, "place 1 does not lie in the slabs of node 0");
    return test_end();
}
