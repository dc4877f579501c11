/* What ends the host's wait for a call that kernels publish: each of its ends, and shares that change hands. */
#include "gpu-worker/calls_watch.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "shm/amends.h"
#include "shm/calls.h"
#include "tests/test.h"

enum { NODE = 2, OTHER = 3, CARD = 4, ITEMS = 3, PARTS = 6 };

static struct geometry g = {.n_nodes = 2,
                            .n_layers = 1,
                            .n_experts = 7,
                            .top_k = 2,
                            .n_embd = 8,
                            .n_ff = 8,
                            .max_tokens = 4,
                            .max_items = ITEMS,
                            .max_pairs = 8,
                            .amend_slots = 16,
                            .order_slots = 4,
                            .n_slabs = 5,
                            .acts_half = 128,
                            .inter_half = 256,
                            .rows_half = 256};
static struct calls *calls;
static struct amends *amends;
static struct outbox *box[MAX_PROCS];
static struct calls_told told;
static uint64_t stop_word;
static int trouble;

static int failed(void *arg)
{
    return *(int *)arg;
}
static struct calls_watch watch_of(uint64_t limit_ns)
{
    return (struct calls_watch){&g, calls, amends, box, &told, &stop_word, limit_ns, failed, &trouble, 0};
}

/* Item 0 is the nodes', item 1 a card's, item 2 on disk. */
static void publish(uint64_t n)
{
    struct call_item items[ITEMS] = {{.expert = 0, .n_pairs = 1, .owner = {NODE, OTHER}},
                                     {.expert = 1, .pair0 = 1, .n_pairs = 1, .owner = {CARD, CARD}},
                                     {.expert = 2, .place = PLACE_NONE, .pair0 = 2, .n_pairs = 1,
                                      .owner = {OWNER_DISK, OWNER_DISK}}};
    struct call_pair pairs[ITEMS] = {{0, 0}, {1, 0}, {2, 0}};
    struct call c = {.head = {.seq = n, .n_tokens = 4, .n_items = ITEMS, .n_pairs = ITEMS, .top_k = 2},
                     .items = items,
                     .pairs = pairs};

    call_publish(&g, calls, &c);
}

static void amended(uint64_t n, uint32_t item, uint32_t share, uint32_t to, uint32_t seq)
{
    struct amendment a = {.seq = seq, .call = n, .item = item, .share = share, .outbox = to};

    amend_publish(&g, amends, calls, &a);
    item_stamp(&g, box[to], n, item, share, seq, STAMP_DONE);
}
/* One of PARTS that make all shares between them. seq: of the next amendment. */
static void make_part(uint64_t n, uint64_t part, uint32_t *seq)
{
    switch (part) {
    case 0:
        owner_stamp(box[NODE], n, 0);
        break;
    case 1:
        owner_stamp(box[OTHER], n, 0);
        break;
    case 2:
        item_stamp(&g, box[CARD], n, 1, 1, 0, STAMP_DECLINED);
        owner_stamp(box[CARD], n, 1);
        break;
    case 3:
        amended(n, 1, 1, OTHER, (*seq)++);
        break;
    default:
        amended(n, 2, (uint32_t)part - 4, NODE, (*seq)++);
    }
}
/* Kernels and workers, later; in each call another part is the last, some time after the others. */
static void *work(void *arg)
{
    uint64_t n = *(uint64_t *)arg;
    uint32_t seq = 1;

    publish(n);
    told.call = n;
    __atomic_store_n(&told.ticket, n, __ATOMIC_RELEASE);
    for (uint64_t i = 0; i < PARTS; i++) {
        if (i == PARTS - 1)
            usleep(500);
        make_part(n, (n + i) % PARTS, &seq);
    }
    return NULL;
}

static void ends(void)
{
    struct calls_watch w = watch_of(50000000);
    uint64_t n = 1;
    pthread_t thread;

    trouble = -EIO;
    CHECK_EQ(calls_watch(&w, 1), -EIO); /* nothing is told, and never will be */
    trouble = 0;
    told = (struct calls_told){1, 0};
    CHECK_EQ(calls_watch(&w, 1), CALLS_MADE); /* no call */
    CHECK_EQ(w.waited_ns, 0);

    publish(n);
    told = (struct calls_told){2, n};
    CHECK_EQ(calls_watch(&w, 2), CALLS_OVER_LIMIT);
    CHECK(w.waited_ns, "no time was waited");
    stop_word = 1;
    CHECK_EQ(calls_watch(&w, 2), CALLS_GIVEN_UP);
    stop_word = 0;
    call_retire(&g, calls, n);

    for (n = 3; n < 3 + 4 * CALL_SLOTS; n++) { /* slots come again: stamps of calls before are no answers */
        uint32_t from;
        w = watch_of(60000000000ull);
        memset(amends, 0, amends_bytes(&g));
        CHECK(!pthread_create(&thread, NULL, work, &n), "no thread");
        CHECK_EQ(calls_watch(&w, n), CALLS_MADE);
        CHECK(share_done(&g, amends, box, n, 0, 0, NODE, &from) && from == NODE, "item 0");
        CHECK(share_done(&g, amends, box, n, 0, 1, OTHER, &from) && from == OTHER, "item 0, another's");
        CHECK(share_done(&g, amends, box, n, 1, 0, CARD, &from) && from == CARD, "item 1");
        CHECK(share_done(&g, amends, box, n, 1, 1, CARD, &from) && from == OTHER, "item 1, another's");
        for (uint32_t k = 0; k < 2; k++)
            CHECK(share_done(&g, amends, box, n, 2, k, OWNER_DISK, &from) && from == NODE, "item 2, share %u", k);
        pthread_join(thread, NULL);
        call_retire(&g, calls, n);
    }
}

static void *lines(uint64_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) & ~63ull);

    if (!p)
        exit(1);
    return memset(p, 0, bytes);
}

int main(void)
{
    calls = lines(calls_bytes(&g));
    amends = lines(amends_bytes(&g));
    for (uint32_t i = NODE; i <= CARD; i++)
        box[i] = lines(outbox_bytes(&g));
    ends();
    free(calls);
    free(amends);
    for (uint32_t i = NODE; i <= CARD; i++)
        free(box[i]);
    return test_end();
}
