/* The steward's books, one step at a time in one thread: the test plays the producer and the
 * workers. Rule numbers: shm/model/README.md. */
#include "shm/steward.h"

#include <stdlib.h>

#include "tests/test.h"

#define NODES 2u
#define ITEMS 2u
#define A 2u /* outboxes */
#define B 3u
#define C 4u
#define BOXES 6u

static struct geometry geo = {.n_nodes = NODES,
                              .n_layers = 1,
                              .n_experts = 8,
                              .top_k = 2,
                              .n_embd = 8,
                              .n_ff = 8,
                              .max_tokens = 1,
                              .max_items = ITEMS,
                              .max_pairs = 2,
                              .amend_slots = 8,
                              .order_slots = 1,
                              .n_slabs = 4,
                              .acts_half = 64,
                              .inter_half = 64,
                              .rows_half = 64};
struct world {
    struct board *board;
    struct bell *bells;
    struct calls *calls;
    struct amends *amends;
    struct outbox *box[BOXES];
    struct steward *s;
    uint64_t next; /* call */
};

static void *zeroed(size_t n)
{
    void *p = aligned_alloc(64, (n + 63) & ~(size_t)63);

    if (!p)
        exit(1);
    return memset(p, 0, n);
}

static struct world open_world(void)
{
    struct world w = {.board = zeroed(sizeof *w.board),
                      .bells = zeroed(BOXES * sizeof *w.bells),
                      .calls = zeroed(calls_bytes(&geo)),
                      .amends = zeroed(amends_bytes(&geo)),
                      .next = 1};
    struct steward_config c = {.geo = &geo,
                               .board = w.board,
                               .bells = w.bells,
                               .calls = w.calls,
                               .amends = w.amends,
                               .ring_calls = 1,
                               .first = 1};
    struct err e = {0};

    CHECK(!steward_open(&c, &w.s, &e), "%s", e.msg);
    for (uint32_t o = A; o < BOXES; o++)
        w.box[o] = zeroed(outbox_bytes(&geo));
    for (uint32_t o = A; o <= C; o++)
        steward_worker(w.s, o, w.box[o], WORKER_LIVE);
    return w;
}

static void close_world(struct world *w)
{
    steward_close(w->s);
    for (uint32_t o = A; o < BOXES; o++)
        free(w->box[o]);
    free(w->board);
    free(w->bells);
    free(w->calls);
    free(w->amends);
}

/* Publishes a call of two items: item 0 in place `p0` with share k owned by o0[k], item 1 likewise.
 */
static uint64_t call_of(struct world *w, uint32_t p0, uint16_t o00, uint16_t o01, uint32_t p1,
                        uint16_t o10, uint16_t o11)
{
    struct call_item items[ITEMS] = {
        {.expert = 1, .place = p0, .epoch = 10 + p0, .pair0 = 0, .n_pairs = 1, .owner = {o00, o01}},
        {.expert = 2,
         .place = p1,
         .epoch = 10 + p1,
         .pair0 = 1,
         .n_pairs = 1,
         .owner = {o10, o11}}};
    struct call_pair pairs[2] = {{0, 0}, {0, 1}};
    struct call c = {
        .head = {.seq = w->next, .n_tokens = 1, .n_items = 2, .n_pairs = 2, .top_k = 2},
        .items = items,
        .pairs = pairs};

    call_publish(&geo, w->calls, &c);
    return w->next++;
}

static int follow(struct world *w)
{
    struct err e = {0};
    int rc = steward_follow(w->s, 1000, &e);

    CHECK(rc >= 0, "%s", e.msg);
    return rc;
}

static int is_named(struct world *w, uint32_t place)
{
    return steward_place_named(w->s, place, 1000, NULL);
}

/* "PLACE 0/1" and so on: what is needed, in one line. */
static const char *needs(struct world *w, uint64_t now, uint64_t deadline)
{
    static const char *const why[] = {"nothing", "place", "owner", "late", "again"};
    static char text[200];
    struct need n[16];
    size_t k;

    follow(w);
    k = steward_needs(w->s, now, deadline, n, 16);
    text[0] = 0;
    for (size_t i = 0; i < k; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s %llu.%u.%u", i ? ", " : "",
                 why[n[i].why], (unsigned long long)n[i].call, n[i].item, n[i].share);
    return text;
}

static void stamp(struct world *w, uint32_t o, uint64_t call, uint32_t item, uint32_t share,
                  uint64_t am, enum stamp_kind kind)
{
    item_stamp(&geo, w->box[o], call, item, share, am, kind);
}

static void calls_come_and_go(void)
{
    struct world w = open_world();
    uint64_t n;

    CHECK_EQ(follow(&w), 0);
    CHECK_EQ(steward_look(w.s), LOOK_NOTHING);
    n = call_of(&w, 0, A, B, 1, A, B);
    CHECK_EQ(steward_look(w.s), LOOK_FOUND);
    w.box[A]->asleep = 1;
    CHECK_EQ(follow(&w), 1);
    CHECK(w.bells[A].word == 1 && w.bells[B].word == 0, "rang %u %u", w.bells[A].word,
          w.bells[B].word);
    CHECK_EQ(w.board->steward_rung, n);
    CHECK_STR(needs(&w, 1000, 0), "");
    CHECK(is_named(&w, 0) && is_named(&w, 1) && !is_named(&w, 2), "places");
    owner_stamp(w.box[A], n, 0);
    CHECK(is_named(&w, 0), "B has not stamped");
    owner_stamp(w.box[B], n, 0);
    CHECK(!is_named(&w, 0), "both have stamped");
    call_of(&w, 0, A, B, 1, A, B);
    call_retire(&geo, w.calls, n);
    CHECK_EQ(follow(&w), 1);
    call_retire(&geo, w.calls, n + 1);
    CHECK(!is_named(&w, 0), "retired"); /* whatever became of its givings */
    for (int i = 0; i < 20; i++) /* it looked away: retired calls are passed over, none else */
        call_retire(&geo, w.calls, call_of(&w, 0, A, B, 1, A, B));
    n = call_of(&w, 2, A, B, 1, A, B);
    CHECK_EQ(follow(&w), 1);
    CHECK_EQ(steward_cursor(w.s), n + 1);
    CHECK(is_named(&w, 2), "the newest");
    close_world(&w);
}

static void an_item_on_disk(void)
{
    struct world w = open_world();
    uint64_t n = call_of(&w, PLACE_NONE, OWNER_DISK, OWNER_DISK, 1, A, B);
    uint32_t owner[MAX_NODES] = {A, B}, box;
    struct amendment am;

    CHECK_STR(needs(&w, 1000, 0), "place 1.0.0");
    CHECK(steward_wants_place(w.s, n, 0) && !steward_wants_place(w.s, n, 1), "wants");
    w.box[B]->asleep = 1;
    CHECK_EQ(steward_grant(w.s, n, 0, 3, 77, owner, 1000), 2); /* every share, one place: rule 18 */
    CHECK_EQ(w.bells[B].word, 1);
    CHECK_EQ(w.board->amends_rung, 2);
    CHECK(is_named(&w, 3), "granted");
    CHECK_EQ(amend_copy(&geo, w.amends, 2, &am), RING_TAKEN);
    CHECK(am.call == n && am.item == 0 && am.share == 1 && am.outbox == B && am.place == 3 &&
              am.epoch == 77,
          "the amendment");
    CHECK_EQ(present_giving(&geo, w.amends, n, 0, 0, OWNER_DISK, &box), 1);
    CHECK_EQ(box, A);
    CHECK_STR(needs(&w, 1000, 0), "");
    stamp(&w, A, n, 0, 0, 1, STAMP_DONE);
    CHECK_EQ(steward_look(w.s), LOOK_RUNG);
    w.box[A]->ringing = 1;
    CHECK_EQ(steward_look(w.s), LOOK_FOUND); /* its ring is due */
    stamp(&w, B, n, 0, 1, 2, STAMP_DECLINED);
    CHECK_STR(needs(&w, 1000, 0), "place 1.0.1");
    CHECK(!is_named(&w, 3), "both answered");
    CHECK_EQ(steward_grant(w.s, n, 0, 2, 78, owner, 1000), 1); /* only what is not DONE */
    CHECK_EQ(steward_counters(w.s)->declines, 1);
    call_retire(&geo, w.calls, n);
    CHECK_EQ(steward_grant(w.s, n, 0, 2, 79, owner, 1000), 0);
    CHECK_EQ(steward_give(w.s, n, 0, 1, A, 2, 79, 1000), 0);
    CHECK(!steward_wants_place(w.s, n, 0), "gone");
    follow(&w);
    CHECK_EQ(atomic_load(redirects_of(&geo, w.amends) + stamp_index(&geo, n, 0, 0)),
             0); /* rule 6 */
    close_world(&w);
}

static void former_owners_hold_the_place(void) /* rule 10 */
{
    struct world w = open_world();
    uint64_t n = call_of(&w, 0, A, B, 1, A, B);

    CHECK_STR(needs(&w, 1000 + 50, 100), "");
    CHECK_STR(needs(&w, 1000 + 101, 100), "late 1.0.0, late 1.0.1, late 1.1.0, late 1.1.1");
    CHECK_EQ(steward_give(w.s, n, 0, 0, C, 0, 10, 2000),
             1); /* A is late: C gets it, in the same place */
    CHECK_EQ(steward_counters(w.s)->late, 1);
    owner_stamp(w.box[B], n, 0);
    stamp(&w, C, n, 0, 0, 1, STAMP_DONE);
    CHECK(is_named(&w, 0), "A may still read it");
    CHECK(steward_outbox_named(w.s, A) && steward_outbox_named(w.s, C), "outboxes");
    owner_stamp(w.box[A], n, 0);
    CHECK(!is_named(&w, 0), "A has ended");
    CHECK_EQ(steward_give(w.s, n, 0, 0, A, 0, 10, 2000), 0); /* it is DONE: nobody needs it */
    call_retire(&geo, w.calls, n);

    n = call_of(&w, 0, A, B, 1, A, B); /* given away and back, in another place, then back again */
    follow(&w);
    CHECK_EQ(steward_give(w.s, n, 0, 0, C, 0, 10, 2000), 1);
    CHECK_EQ(steward_give(w.s, n, 0, 0, A, 2, 11, 2000), 1);
    CHECK_EQ(steward_give(w.s, n, 0, 0, A, 3, 12, 2000), 1);
    CHECK(is_named(&w, 0) && is_named(&w, 2) && is_named(&w, 3), "three places");
    stamp(&w, A, n, 0, 0, steward_counters(w.s)->amendments, STAMP_DONE);
    CHECK(is_named(&w, 0), "the call's giving and C's");
    CHECK(!is_named(&w, 2) && !is_named(&w, 3), "a later stamp answers the earlier amendments");
    close_world(&w);
}

static void the_dead(void)
{
    struct world w = open_world();
    uint64_t n = call_of(&w, 0, A, B, 1, B, A);
    struct lost lost[1];

    follow(&w);
    steward_worker(w.s, A, w.box[A], WORKER_DEAD);
    CHECK_STR(needs(&w, 1000, 0), "owner 1.0.0, owner 1.1.1"); /* B's are awaited */
    CHECK_EQ(steward_lost(w.s, A, lost, 1), 2);
    CHECK(lost[0].call == n && lost[0].layer == 0 && lost[0].expert == 1, "which item");
    CHECK_EQ(steward_lost(w.s, C, lost, 1), 0);
    CHECK_EQ(steward_give(w.s, n, 0, 0, C, 0, 10, 1000), 1);
    stamp(&w, C, n, 0, 0, 1, STAMP_DONE);
    owner_stamp(w.box[B], n, 0);
    CHECK(is_named(&w, 0), "it may still write");
    steward_worker(w.s, A, w.box[A], WORKER_REAPED);
    CHECK(!is_named(&w, 0), "it is quiet");
    CHECK(steward_outbox_named(w.s, A), "the call names it");
    CHECK_STR(needs(&w, 1000, 0), "place 1.1.1"); /* nobody is awaited: it can be granted elsewhere */
    CHECK(steward_wants_place(w.s, n, 1), "wants");
    owner_stamp(w.box[A], n, 0); /* it was there before the death, seen late: it stays true */
    CHECK_STR(needs(&w, 1000, 0), "");
    call_retire(&geo, w.calls, n);
    n = call_of(&w, 0, A, C, 1, B, C); /* published late, for the old A: rule 12 */
    CHECK_STR(needs(&w, 1000, 0), "owner 2.0.0");
    call_retire(&geo, w.calls, n);
    follow(&w);
    CHECK(!steward_outbox_named(w.s, A), "no open call names it");
    close_world(&w);
}

static void declined_in_a_place_that_stands(void) /* rule 20 */
{
    struct world w = open_world();
    uint64_t n = call_of(&w, 0, A, B, 1, C, C);

    stamp(&w, A, n, 0, 0, 0, STAMP_DECLINED);
    CHECK_STR(needs(&w, 1000, 0), "again 1.0.0"); /* at once: A's owner stamp may wait for B */
    owner_stamp(w.box[A], n, 1);
    CHECK_STR(needs(&w, 1000, 0), "again 1.0.0");
    CHECK_EQ(steward_give(w.s, n, 0, 0, C, 0, 10, 1000), 1);
    CHECK_STR(needs(&w, 1000, 0), "");
    stamp(&w, C, n, 0, 0, 1, STAMP_DECLINED);
    owner_stamp(w.box[B], n, 0);
    CHECK_STR(needs(&w, 1000, 0), "place 1.0.0"); /* no share is unstamped */
    close_world(&w);
}

static void that_share_first(void) /* rule 11: 8 slots, 8 shares */
{
    struct world w = open_world();
    uint64_t m = call_of(&w, 0, A, B, 1, A, B), n = call_of(&w, 2, A, B, 3, A, B), last;
    struct amendment am;
    uint32_t box;

    follow(&w);
    for (uint32_t i = 0; i < ITEMS; i++)
        for (uint32_t k = 0; k < NODES; k++) {
            CHECK_EQ(steward_give(w.s, m, i, k, C, i, 10 + i, 1), 1);
            CHECK_EQ(steward_give(w.s, n, i, k, C, 2 + i, 12 + i, 1), 1);
        }
    CHECK_EQ(w.amends->head, 8);
    CHECK_EQ(steward_counters(w.s)->first_amended, 0);
    /* every slot counts now. The last one's share again: the seven others go first. */
    CHECK_EQ(steward_give(w.s, n, 1, 1, B, 3, 13, 1), 1);
    CHECK_EQ(steward_counters(w.s)->first_amended, 7);
    last = w.amends->head;
    CHECK_EQ(last, 16);
    CHECK_EQ(amend_copy(&geo, w.amends, last, &am), RING_TAKEN);
    CHECK(am.call == n && am.item == 1 && am.share == 1 && am.outbox == B,
          "the wanted one is last");
    CHECK_EQ(present_giving(&geo, w.amends, m, 0, 0, A, &box), 9);
    CHECK_EQ(box, C); /* its owner lives and keeps it */
    /* a stamped one does not count, nor does one whose owner is dead: who would look for it? */
    stamp(&w, C, m, 0, 0, 9, STAMP_DONE);
    steward_worker(w.s, C, w.box[C], WORKER_DEAD);
    CHECK_EQ(steward_give(w.s, n, 0, 0, A, 2, 12, 1), 1);
    CHECK_EQ(w.amends->head, 17);
    CHECK_EQ(steward_give(w.s, m, 0, 1, A, 0, 10, 1), 1); /* slot of 10: n's 0.0 has a newer one */
    CHECK_EQ(steward_give(w.s, m, 1, 1, A, 1, 11, 1), 1); /* slot of 11: m's 0.1 likewise */
    CHECK_EQ(w.amends->head, 19);
    CHECK_EQ(steward_give(w.s, m, 1, 0, A, 1, 11, 1),
             1); /* slot of 12: n's 0.1, which C had */
    CHECK_EQ(w.amends->head, 20);
    CHECK_EQ(present_giving(&geo, w.amends, n, 0, 1, A, &box), 12);
    CHECK_EQ(box, C); /* it needs somebody, by and by */
    CHECK_EQ(present_giving(&geo, w.amends, m, 1, 0, B, &box), 20);
    close_world(&w);
}

static void too_many_late_owners(void)
{
    struct world w = open_world();
    uint64_t n = call_of(&w, 0, A, B, 1, A, B);
    int rc = 1, times = 0;

    follow(&w);
    while (rc == 1 && times < 1000) { /* to and fro, nobody answers; each time another place */
        rc = steward_give(w.s, n, 0, 0, times % 2 ? A : C, (uint32_t)times % 4, 10 + (uint64_t)times, 1);
        times++;
    }
    CHECK_EQ(rc, -EAGAIN);
    stamp(&w, A, n, 0, 0, steward_counters(w.s)->amendments, STAMP_DONE);
    stamp(&w, C, n, 0, 0, steward_counters(w.s)->amendments, STAMP_DONE);
    follow(&w);
    CHECK(steward_give(w.s, n, 0, 1, A, 0, 10, 1) == 1, "no room though they have answered");
    close_world(&w);
}

/* Owners that sleep for long are asked again and again, in the same place: the books do not fill, and another share
 * that needs somebody gets him. */
static void late_for_long(void)
{
    struct world w = open_world();
    uint64_t n = call_of(&w, 0, A, B, 1, A, B);

    follow(&w);
    for (int times = 0; times < 1000; times++)
        CHECK_EQ(steward_give(w.s, n, 0, 0, times % 2 ? A : C, 0, 10, 1), 1);
    CHECK(is_named(&w, 0), "the place is given back before its owners have answered");
    CHECK_EQ(steward_give(w.s, n, 1, 0, C, 1, 11, 1), 1);
    stamp(&w, C, n, 1, 0, 1001, STAMP_DONE);
    stamp(&w, A, n, 0, 0, 1000, STAMP_DONE);
    stamp(&w, C, n, 0, 0, 999, STAMP_DONE);
    stamp(&w, A, n, 1, 0, 0, STAMP_DONE);
    follow(&w);
    close_world(&w);
}

static void broken_producers(void)
{
    struct world w = open_world();
    struct err e = {0};

    call_of(&w, 9, A, B, 1, A, B); /* no such place */
    CHECK_EQ(steward_follow(w.s, 1, &e), -EPROTO);
    CHECK(strstr(e.msg, "call 1"), "%s", e.msg);
    close_world(&w);
    w = open_world();
    call_of(&w, 0, A, B, 1, A, 5); /* no such outbox */
    CHECK_EQ(steward_follow(w.s, 1, NULL), -EPROTO);
    close_world(&w);
    w = open_world();
    call_of(&w, 0, A, B, 1, A, B);
    call_of(&w, 0, A, B, 1, A, B);
    CHECK_EQ(steward_follow(w.s, 1, NULL), 2);
    call_of(&w, 0, A, B, 1, A, B); /* a third in flight */
    CHECK_EQ(steward_follow(w.s, 1, NULL), -EPROTO);
    close_world(&w);
}

static void slots_too_few(void)
{
    struct geometry g = geo;
    struct steward_config c = {.geo = &g};
    struct steward *s;

    g.amend_slots = 4; /* 8 shares in flight: rule 11 would never end */
    CHECK_EQ(steward_open(&c, &s, NULL), -EINVAL);
    g.amend_slots = 24;
    CHECK_EQ(steward_open(&c, &s, NULL), -EINVAL);
}

int main(void)
{
    calls_come_and_go();
    an_item_on_disk();
    former_owners_hold_the_place();
    the_dead();
    declined_in_a_place_that_stands();
    that_share_first();
    too_many_late_owners();
    late_for_long();
    broken_producers();
    slots_too_few();
    return test_end();
}
