/* The words of both rings, one step at a time: what a reader is told in each state of a slot, whose
 * stamp answers what, and which numbers are refused. */
#include "shm/calls.h"

#include <stdlib.h>

#include "shm/amends.h"
#include "tests/test.h"

static struct geometry g = {.n_nodes = 2,
                            .n_layers = 3,
                            .n_experts = 7,
                            .top_k = 2,
                            .n_embd = 8,
                            .n_ff = 8,
                            .max_tokens = 4,
                            .max_items = 3,
                            .max_pairs = 8,
                            .amend_slots = 16,
                            .order_slots = 4,
                            .n_slabs = 5,
                            .acts_half = 128,
                            .inter_half = 256,
                            .rows_half = 256};
static struct calls *calls;
static struct amends *amends;

static struct call_item items[3];
static struct call_pair pairs[8];

static struct call good_call(uint64_t n)
{
    memset(items, 0, sizeof items);
    memset(pairs, 0, sizeof pairs);
    for (uint32_t i = 0; i < 3; i++) {
        items[i] = (struct call_item){
            .expert = i, .place = i, .epoch = 100 + i, .pair0 = i, .n_pairs = 1, .owner = {2, 3}};
        pairs[i] = (struct call_pair){(uint16_t)i, 1};
    }
    return (struct call){.head = {.seq = n,
                                  .layer = 2,
                                  .n_tokens = 4,
                                  .n_items = 3,
                                  .n_pairs = 3,
                                  .top_k = 2,
                                  .acts = n % 2 * g.acts_half},
                         .items = items,
                         .pairs = pairs};
}

static void a_slot_s_life(void)
{
    struct call_item it[3];
    struct call_pair pr[8];
    struct call c, out = {.items = it, .pairs = pr};
    uint64_t later = 1 + CALL_SLOTS;
    int ours;

    CHECK_EQ(call_copy(&g, calls, 1, &out), RING_NOT_YET);
    c = good_call(1);
    call_publish(&g, calls, &c);
    CHECK_EQ(calls->head, 1);
    CHECK_EQ(call_copy(&g, calls, 1, &out), RING_TAKEN);
    CHECK(!memcmp(&out.head, &c.head, sizeof c.head) && !memcmp(it, items, sizeof it) &&
              !memcmp(pr, pairs, 3 * sizeof *pr),
          "the copy differs");
    CHECK_EQ(call_copy(&g, calls, later, &out), RING_NOT_YET); /* the slot's next call */
    CHECK(call_is_open(&g, calls, 1), "closed");
    CHECK_EQ(call_peek(&g, calls, 1, 3, &ours), RING_TAKEN);
    CHECK_EQ(ours, 1);
    CHECK_EQ(call_peek(&g, calls, 1, 4, &ours), RING_TAKEN);
    CHECK_EQ(ours, 0);
    call_retire(&g, calls, 1);
    CHECK_EQ(call_copy(&g, calls, 1, &out), RING_GONE);
    CHECK_EQ(call_peek(&g, calls, 1, 3, &ours), RING_GONE);
    CHECK_EQ(call_copy(&g, calls, later, &out), RING_NOT_YET); /* retired is not 0: rule 2 */
    CHECK(!call_is_open(&g, calls, 1), "open");
    c = good_call(later);
    call_publish(&g, calls, &c);
    CHECK_EQ(call_copy(&g, calls, 1, &out), RING_GONE);
    CHECK_EQ(call_copy(&g, calls, later, &out), RING_TAKEN);
    CHECK_EQ(out.head.seq, later);
    call_retire(&g, calls, later);
}

static void refused(const char *what, struct call *c)
{
    struct err e = {0};

    CHECK(call_check(&g, c, &e) == -EPROTO && e.msg[0], "%s accepted", what);
}

static void numbers_out_of_range(void)
{
    struct call c = good_call(1);

    CHECK(!call_check(&g, &c, NULL), "a good one refused");
#define BAD(what)                                                                                  \
    do {                                                                                           \
        c = good_call(1);                                                                          \
        what;                                                                                      \
        refused(#what, &c);                                                                        \
    } while (0)
    BAD(c.head.layer = 3);
    BAD(c.head.n_tokens = 5);
    BAD(c.head.n_items = 4);
    BAD(c.head.n_pairs = 9);
    BAD(c.head.top_k = 3);
    BAD(c.head.acts = 256);
    BAD(c.head.acts = UINT64_MAX - 3);
    BAD(c.head.acts = 2);
    BAD(items[1].expert = 7);
    BAD(items[1].place = 5);
    BAD(items[1].place = PLACE_NONE); /* with owners */
    BAD(items[2].pair0 = 4);
    BAD(items[2].n_pairs = 2);
    BAD(items[2].pair0 = UINT32_MAX);
    BAD(items[0].owner[1] = MAX_PROCS);
    BAD(pairs[2].token = 4);
    BAD(pairs[0].rank = 2);
#undef BAD
    c = good_call(1);
    items[1].place = PLACE_NONE;
    items[1].owner[0] = items[1].owner[1] = OWNER_DISK;
    CHECK(!call_check(&g, &c, NULL), "an item on disk refused");
}

static void whose_stamp(struct outbox *o)
{
    uint64_t n = 20;

    CHECK_EQ(giving_answer(&g, o, n, 1, 0, 0), STAMP_NONE);
    owner_stamp(o, n, 0);
    CHECK_EQ(giving_answer(&g, o, n, 1, 0, 0), STAMP_DONE);
    CHECK_EQ(giving_answer(&g, o, n + CALL_SLOTS, 1, 0, 0),
             STAMP_NONE);                                   /* another call, the same slot */
    CHECK_EQ(giving_answer(&g, o, n, 1, 0, 5), STAMP_NONE); /* an amendment is another giving */
    n += CALL_SLOTS;
    item_stamp(&g, o, n, 1, 0, 0, STAMP_DECLINED);
    CHECK_EQ(giving_answer(&g, o, n, 1, 0, 0),
             STAMP_DECLINED); /* though the owner stamp comes last */
    CHECK(giving_over(&g, o, n, 1, 0, 0), "not over");
    CHECK_EQ(giving_answer(&g, o, n, 1, 1, 0), STAMP_NONE);
    owner_stamp(o, n, 1);
    CHECK_EQ(giving_answer(&g, o, n, 1, 0, 0), STAMP_DECLINED); /* rule 7 */
    CHECK_EQ(giving_answer(&g, o, n, 1, 1, 0), STAMP_DONE);     /* its other share */
    CHECK(giving_over(&g, o, n, 1, 0, 0), "not over");
    item_stamp(&g, o, n, 1, 0, 7, STAMP_DONE);
    CHECK_EQ(giving_answer(&g, o, n, 1, 0, 7), STAMP_DONE);
    CHECK_EQ(giving_answer(&g, o, n, 1, 0, 6), STAMP_NONE);
    CHECK(giving_over(&g, o, n, 1, 0, 6) && !giving_over(&g, o, n, 1, 0, 8),
          "later stamps answer earlier");
    item_stamp(&g, o, n, 1, 0, 0, STAMP_DECLINED); /* rule 8: never over an amendment's */
    CHECK_EQ(giving_answer(&g, o, n, 1, 0, 7), STAMP_DONE);
    item_stamp(&g, o, n, 1, 0, 6, STAMP_DECLINED); /* nor over a later one's */
    CHECK_EQ(giving_answer(&g, o, n, 1, 0, 7), STAMP_DONE);
    n += CALL_SLOTS;
    item_stamp(&g, o, n, 1, 0, 0, STAMP_DECLINED); /* but over an earlier call's */
    owner_stamp(o, n, 1);
    CHECK_EQ(giving_answer(&g, o, n, 1, 0, 0), STAMP_DECLINED);
    item_stamp(&g, o, n, 2, 1, 9, STAMP_DONE);
    item_stamps_clear(&g, o, n + CALL_SLOTS);
    CHECK_EQ(item_stamp_of(&g, o, n, 2, 1), 0);
    CHECK_EQ(staged(&g, o, n, 2, 1), 0);
    stage_stamp(&g, o, n, 2, 1);
    CHECK_EQ(staged(&g, o, n, 2, 1), 1);
    CHECK_EQ(staged(&g, o, n + CALL_SLOTS, 2, 1), 0); /* rule 17 */
}

static void amendments_and_redirects(void)
{
    struct amendment am = {
        .seq = 1, .call = 33, .item = 2, .share = 1, .outbox = 9, .place = 4, .epoch = 8};
    struct amendment got = {0};
    struct call c = good_call(33);
    uint32_t box;

    call_publish(&g, calls, &c);
    CHECK_EQ(amend_copy(&g, amends, 1, &got), RING_NOT_YET);
    CHECK_EQ(present_giving(&g, amends, 33, 2, 1, 3, &box), 0);
    CHECK_EQ(box, 3);
    amend_publish(&g, amends, calls, &am);
    CHECK_EQ(amend_copy(&g, amends, 1, &got), RING_TAKEN);
    CHECK(!memcmp(&am, &got, sizeof am), "the copy differs");
    CHECK_EQ(present_giving(&g, amends, 33, 2, 1, 3, &box), 1);
    CHECK_EQ(box, 9);
    CHECK_EQ(present_giving(&g, amends, 33, 2, 0, 3, &box), 0); /* the other share */
    CHECK_EQ(present_giving(&g, amends, 33 + CALL_SLOTS, 2, 1, 3, &box),
             0); /* another call: rule 6 */
    CHECK(amend_counts(&g, amends, calls, 1 + g.amend_slots, &got) && got.seq == 1,
          "does not count");
    am.seq = 2; /* the same share again */
    am.outbox = 2;
    amend_publish(&g, amends, calls, &am);
    CHECK(!amend_counts(&g, amends, calls, 1 + g.amend_slots, &got), "counts beside a newer one");
    CHECK(amend_counts(&g, amends, calls, 2 + g.amend_slots, &got), "does not count");
    call_retire(&g, calls, 33);
    CHECK(!amend_counts(&g, amends, calls, 2 + g.amend_slots, &got), "counts after its call");
    am.seq = 3; /* decided for a call that has gone meanwhile: the word is taken back */
    am.share = 0;
    amend_publish(&g, amends, calls, &am);
    CHECK_EQ(present_giving(&g, amends, 33, 2, 0, 3, &box), 0);
    am.seq = 1 + g.amend_slots;
    amend_publish(&g, amends, calls, &am);
    CHECK_EQ(amend_copy(&g, amends, 1, &got), RING_GONE);
    CHECK_EQ(amend_copy(&g, amends, 1 + g.amend_slots, &got), RING_TAKEN);
    CHECK_EQ(got.seq, 1 + g.amend_slots);
}

static void packed_words(void)
{
    uint64_t w = REDIRECT(AMEND_LAST, 1023, 0x12345);

    CHECK(REDIRECT_AMEND(w) == AMEND_LAST && REDIRECT_OUTBOX(w) == 1023, "%llx",
          (unsigned long long)w);
    CHECK(REDIRECT_IS_OF(w, 0x12345) && !REDIRECT_IS_OF(w, 0x12344) && !REDIRECT_IS_OF(0, 0),
          "call");
    w = STAMP(AMEND_LAST, 0xABFFFFFFull, STAMP_DECLINED);
    CHECK(STAMP_AMEND(w) == AMEND_LAST && STAMP_KIND(w) == STAMP_DECLINED, "%llx",
          (unsigned long long)w);
    CHECK(STAMP_IS_OF(w, 0xABFFFFFFull) && !STAMP_IS_OF(w, 0xABFFFFFEull) && !STAMP_IS_OF(0, 0),
          "call");
    w = ENTRY(0, 1);
    CHECK(w && ENTRY_PLACE(w) == 0 && ENTRY_EPOCH(w) == 1, "%llx", (unsigned long long)w);
    w = ENTRY(PLACE_NONE - 1, (1ull << ENTRY_EPOCH_BITS) - 1);
    CHECK(ENTRY_PLACE(w) == PLACE_NONE - 1 && ENTRY_EPOCH(w) == (1ull << ENTRY_EPOCH_BITS) - 1,
          "entry");
}

int main(void)
{
    struct outbox *o = aligned_alloc(64, (outbox_bytes(&g) + 63) & ~63ull);

    calls = aligned_alloc(64, (calls_bytes(&g) + 63) & ~63ull);
    amends = aligned_alloc(64, (amends_bytes(&g) + 63) & ~63ull);
    if (!o || !calls || !amends)
        return 1;
    memset(o, 0, outbox_bytes(&g));
    memset(calls, 0, calls_bytes(&g));
    memset(amends, 0, amends_bytes(&g));
    packed_words();
    a_slot_s_life();
    numbers_out_of_range();
    whose_stamp(o);
    amendments_and_redirects();
    free(o);
    free(calls);
    free(amends);
    return test_end();
}
