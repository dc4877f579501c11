/* Orders cut into reads, priorities, results; and the check of orders. No file is touched. */
#include "pager/jobs.h"

#include <stdlib.h>

#include "pager/check.h"
#include "tests/test.h"

#define HOLDS(cond) CHECK((cond), "does not hold") /* the condition says enough */

enum { SLOTS = 8, DEPTH = 4, LOW = 3 };

static struct order one(uint64_t number, uint32_t prio, uint64_t off, uint64_t bytes, uint64_t need)
{
    return (struct order){.number = number,
                          .kind = ORDER_READ,
                          .prio = prio,
                          .layer = 1,
                          .expert = 2,
                          .n_pieces = 1,
                          .piece[0] = {.file_off = off, .bytes = bytes, .need = need, .dst = off}};
}

static void start(struct jobs *js)
{
    struct err e = {0};

    CHECK_EQ(jobs_init(js, SLOTS, DEPTH, LOW, &e), 0);
}

static void test_cut(void)
{
    struct jobs js;
    struct order o = one(1, PRIO_DEMAND, 4096, 3 * READ_BYTES, 2 * (uint64_t)READ_BYTES + 5);
    struct job_read *r[4];
    struct job_result res;

    start(&js);
    o.n_pieces = 2;
    o.piece[1] = (struct order_piece){.shard = 3, .seg = 1, .bytes = 4096, .need = 1, .dst = 8192};
    CHECK_EQ(jobs_add(&js, &o), 0);
    for (int i = 0; i < 4; i++)
        r[i] = jobs_next(&js);
    HOLDS(r[3] && !jobs_next(&js));
    CHECK_EQ(r[0]->off, 4096);
    CHECK_EQ(r[0]->need, READ_BYTES);
    CHECK_EQ(r[1]->dst, 4096 + READ_BYTES);
    CHECK_EQ(r[2]->need, 5);
    CHECK_EQ(r[2]->bytes, READ_BYTES);
    CHECK_EQ(r[3]->shard, 3);
    CHECK_EQ(r[3]->seg, 1);
    CHECK_EQ(r[3]->dst, 8192);
    for (int i = 0; i < 4; i++) {
        res = jobs_result(&js, r[3 - i], (int64_t)r[3 - i]->need);
        HOLDS(!res.again && !res.report);
        CHECK_EQ(res.ended, i == 3);
    }
    CHECK_EQ(js.n_open, 0);
    CHECK_EQ(js.out, 0);
    jobs_free(&js);
}

static void test_blocks_behind_need_are_not_read(void)
{
    struct jobs js;
    struct order o = one(1, PRIO_DEMAND, 0, 4 * READ_BYTES, READ_BYTES);
    struct job_read *r;

    start(&js);
    CHECK_EQ(jobs_add(&js, &o), 0);
    r = jobs_next(&js);
    HOLDS(!jobs_next(&js));
    CHECK_EQ(jobs_result(&js, r, READ_BYTES).ended, 1);
    jobs_free(&js);
}

static void test_priorities(void)
{
    struct jobs js;
    struct order o;
    struct job_read *r[DEPTH];

    start(&js);
    o = one(1, PRIO_WARM, 0, 8 * READ_BYTES, 8 * READ_BYTES);
    jobs_add(&js, &o);
    o = one(2, PRIO_PREFETCH, 0, 2 * READ_BYTES, 2 * READ_BYTES);
    jobs_add(&js, &o);
    r[0] = jobs_next(&js);
    r[1] = jobs_next(&js);
    r[2] = jobs_next(&js);
    CHECK_EQ(jobs_order(r[0])->number, 2);
    CHECK_EQ(jobs_order(r[1])->number, 2);
    CHECK_EQ(jobs_order(r[2])->number, 1);
    CHECK(!jobs_next(&js), "one place is kept for demand");
    o = one(3, PRIO_DEMAND, 0, 2 * READ_BYTES, 2 * READ_BYTES);
    jobs_add(&js, &o);
    r[3] = jobs_next(&js);
    HOLDS(r[3] && jobs_order(r[3])->number == 3);
    HOLDS(!jobs_next(&js));
    jobs_result(&js, r[2], READ_BYTES);
    r[2] = jobs_next(&js);
    CHECK(r[2] && jobs_order(r[2])->number == 3, "demand before warm-up");
    CHECK_EQ(jobs_result(&js, r[0], READ_BYTES).ended, 0);
    CHECK_EQ(jobs_result(&js, r[1], READ_BYTES).ended, 1);
    CHECK_EQ(jobs_result(&js, r[3], READ_BYTES).ended, 0);
    CHECK_EQ(jobs_result(&js, r[2], READ_BYTES).ended, 1);
    CHECK_EQ(js.n_open, 1);
    jobs_free(&js);
}

static void test_short_read_goes_on(void)
{
    struct jobs js;
    struct order o = one(1, PRIO_DEMAND, 8192, 16 * 4096, 16 * 4096 - 9);
    struct job_read *r;
    struct job_result res;

    start(&js);
    jobs_add(&js, &o);
    r = jobs_next(&js);
    res = jobs_result(&js, r, 3 * 4096 + 77); /* what is behind the last whole block comes again */
    CHECK_EQ(res.again, 1);
    CHECK_EQ(r->off, 8192 + 3 * 4096);
    CHECK_EQ(r->dst, 8192 + 3 * 4096);
    CHECK_EQ(r->bytes, 13 * 4096);
    CHECK_EQ(r->need, 13 * 4096 - 9);
    res = jobs_result(&js, r, 13 * 4096 - 9); /* the file's end */
    HOLDS(res.ended && !res.failed && !res.report);
    jobs_free(&js);
}

static void test_end_of_file_fails(void)
{
    struct jobs js;
    struct order o = one(1, PRIO_DEMAND, 8192, 4096, 4000);
    struct job_read *r;
    struct job_result res;
    unsigned tries = 0;

    start(&js);
    jobs_add(&js, &o);
    r = jobs_next(&js);
    for (res = jobs_result(&js, r, 100); res.again; res = jobs_result(&js, r, 100))
        tries++;
    CHECK_EQ(tries, RETRY_SHORT);
    HOLDS(res.ended && res.failed);
    CHECK_EQ(res.report, -ENODATA);
    CHECK_EQ(res.at, 8292);
    o.number = 2;
    jobs_add(&js, &o);
    res = jobs_result(&js, jobs_next(&js), 0);
    HOLDS(res.ended && res.failed && res.report == -ENODATA);
    CHECK_EQ(res.at, 8192);
    jobs_free(&js);
}

static void test_retries(void)
{
    static const struct {
        int code;
        unsigned most;
        int again;
    } c[] = {
        {-EIO, RETRY_EIO, 1}, {-EAGAIN, RETRY_AGAIN, 2}, {-EINTR, RETRY_AGAIN, 2}, {-EBADF, 0, 0}};
    struct jobs js;

    start(&js);
    for (unsigned i = 0; i < sizeof c / sizeof *c; i++) {
        struct order o = one(i + 1, PRIO_DEMAND, 0, 4096, 4096);
        struct job_read *r;
        struct job_result res;
        jobs_add(&js, &o);
        r = jobs_next(&js);
        for (unsigned k = 0; k < c[i].most; k++) {
            res = jobs_result(&js, r, c[i].code);
            CHECK_EQ(res.again, c[i].again);
        }
        res = jobs_result(&js, r, c[i].code);
        HOLDS(!res.again && res.ended && res.failed);
        CHECK_EQ(res.report, c[i].code);
    }
    CHECK_EQ(js.out, 0);
    jobs_free(&js);
}

/* An order fails while reads of it are out and others were not begun: it is told once, begins
 * nothing more, and ends with the last of its reads. */
static void test_failed_order_waits_for_its_reads(void)
{
    struct jobs js;
    struct order o = one(1, PRIO_DEMAND, 0, 16 * READ_BYTES, 16 * READ_BYTES);
    struct order other = one(2, PRIO_DEMAND, 0, 4096, 4096),
                 late = one(9, PRIO_DEMAND, 0, 4096, 4096);
    struct job_read *r[3], *s;
    struct job_result res;

    start(&js);
    jobs_add(&js, &o);
    jobs_add(&js, &other);
    for (int i = 0; i < 3; i++)
        r[i] = jobs_next(&js);
    res = jobs_result(&js, r[1], -EBADF);
    HOLDS(res.report == -EBADF && !res.ended);
    CHECK_EQ(jobs_add(&js, &late), -EEXIST); /* the slot of order 1 */
    s = jobs_next(&js);
    HOLDS(s && jobs_order(s)->number == 2);
    res = jobs_result(&js, r[0], -EBADF);
    HOLDS(!res.report && !res.ended);
    res = jobs_result(&js, r[2], READ_BYTES / 2); /* short: not worth going on */
    HOLDS(!res.again && res.ended && res.failed && res.number == 1);
    res = jobs_result(&js, s, 4096);
    HOLDS(res.ended && !res.failed);
    CHECK_EQ(jobs_add(&js, &late), 0);
    jobs_free(&js);
}

/* Random orders, depths, results: every wanted byte is read once, and every order ends. */
static void test_random(void)
{
    struct jobs js;
    uint64_t number = 0, ended = 0, wanted = 0, read = 0;
    struct job_read *out[DEPTH];
    unsigned n_out = 0;

    start(&js);
    srand(1);
    while (ended < 2000) {
        struct job_read *r = NULL;
        if (number < 2000 && number - ended < SLOTS && rand() % 2) {
            struct order o = one(++number, (uint32_t)rand() % 3, 0, 0, 0);
            o.n_pieces = 1 + (uint32_t)rand() % ORDER_PIECES;
            for (uint32_t i = 0; i < o.n_pieces; i++) {
                o.piece[i].need = 1 + (uint64_t)(rand() % (3 * (int)READ_BYTES));
                o.piece[i].bytes = (o.piece[i].need + 4095) / 4096 * 4096;
                wanted += o.piece[i].need;
            }
            if (jobs_add(&js, &o) < 0) { /* an older order ended late; try the number again */
                number--;
                for (uint32_t i = 0; i < o.n_pieces; i++)
                    wanted -= o.piece[i].need;
            }
        }
        while (n_out < DEPTH && (r = jobs_next(&js)))
            out[n_out++] = r;
        if (n_out) {
            unsigned k = (unsigned)rand() % n_out;
            struct job_result res;
            uint64_t got = out[k]->need;
            if (rand() % 4 == 0)
                got = got * ((unsigned)rand() % 100) / 100;
            if (got >= out[k]->need || got >= 4096)
                read += got >= out[k]->need ? out[k]->need : got & ~4095ull;
            else
                got = out[k]->need, read += got;
            res = jobs_result(&js, out[k], (int64_t)got);
            ended += (uint64_t)res.ended;
            if (!res.again)
                out[k] = out[--n_out];
        }
    }
    CHECK_EQ(ended, 2000);
    CHECK_EQ(read, wanted);
    CHECK_EQ(js.out, 0);
    CHECK_EQ(js.low_out, 0);
    jobs_free(&js);
}

static void test_check(void)
{
    const uint64_t shard[2] = {100000, 5 * 4096}, seg[3] = {1 << 20, 0, 8192};
    const struct check_bounds b = {
        .n_shards = 2, .shard_bytes = shard, .n_segs = 3, .seg_bytes = seg};
    const struct order good = one(7, PRIO_WARM, 8192, 4096, 100);
    struct order o;
    struct err e = {0};

    o = good;
    CHECK_EQ(check_order(&o, 7, &b, &e), 0);
    o = good;
    o.piece[0].file_off = 24 * 4096; /* the file ends 1696 bytes into this block */
    o.piece[0].need = 1696;
    CHECK_EQ(check_order(&o, 7, &b, &e), 0);
#define REFUSED(change)                                                                            \
    do {                                                                                           \
        struct err why = {0};                                                                      \
        o = good;                                                                                  \
        change;                                                                                    \
        CHECK_EQ(check_order(&o, 7, &b, &why), -EPROTO);                                           \
        CHECK(strstr(why.msg, "order 7"), "%s", why.msg);                                          \
    } while (0)
    REFUSED(o.number = 8);
    REFUSED(o.kind = 0);
    REFUSED(o.kind = 2);
    REFUSED(o.prio = 3);
    REFUSED(o.n_pieces = 0);
    REFUSED(o.n_pieces = ORDER_PIECES + 1);
    REFUSED(o.piece[0].shard = 2);
    REFUSED(o.piece[0].seg = 3);
    REFUSED(o.piece[0].seg = 1);
    REFUSED(o.piece[0].file_off = 512);
    REFUSED(o.piece[0].dst = 1);
    REFUSED(o.piece[0].bytes = 0);
    REFUSED(o.piece[0].bytes = 5000);
    REFUSED(o.piece[0].need = 0);
    REFUSED(o.piece[0].need = 4097);
    REFUSED(o.piece[0].dst = 1 << 20);
    REFUSED(o.piece[0].dst = (uint64_t)-4096);
    REFUSED((o.piece[0].seg = 2, o.piece[0].bytes = 12288, o.piece[0].dst = 0));
    REFUSED((o.piece[0].file_off = 24 * 4096, o.piece[0].need = 1697));
    REFUSED(o.piece[0].file_off = (uint64_t)-4096);
    REFUSED((o.n_pieces = 2, o.piece[1] = o.piece[0], o.piece[1].dst = 3));
}

int main(void)
{
    test_cut();
    test_blocks_behind_need_are_not_read();
    test_priorities();
    test_short_read_goes_on();
    test_end_of_file_fails();
    test_retries();
    test_failed_order_waits_for_its_reads();
    test_random();
    test_check();
    return test_end();
}
