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
    CHECK_EQ(r[2]->bytes, READ_ALIGN);
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
    HOLDS(res.ended && !res.why && !res.report);
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
    HOLDS(res.ended && res.why == ORDER_WHY_IO);
    CHECK_EQ(res.report, -ENODATA);
    CHECK_EQ(res.at, 8292);
    o.number = 2;
    jobs_add(&js, &o);
    res = jobs_result(&js, jobs_next(&js), 0);
    HOLDS(res.ended && res.why == ORDER_WHY_IO && res.report == -ENODATA);
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
        HOLDS(!res.again && res.ended && res.why == ORDER_WHY_IO);
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
    HOLDS(!res.again && res.ended && res.why == ORDER_WHY_IO && res.number == 1);
    CHECK_EQ(res.piece, 0);
    res = jobs_result(&js, s, 4096);
    HOLDS(res.ended && !res.why);
    CHECK_EQ(jobs_add(&js, &late), 0);
    jobs_free(&js);
}

/* Any bytes of the file to any bytes of a place: blocks into the bounce area, then what is wanted. */
static void test_copied_piece(void)
{
    struct jobs js;
    struct order o = one(1, PRIO_DEMAND, 0, 0, 0);
    const uint64_t need = READ_BYTES + 50;
    struct job_read *r[2];
    struct job_work w;
    struct job_result res;

    o.piece[0] = (struct order_piece){
        .file_off = 8192 + 4000, .bytes = need, .need = need, .dst = 77, .flags = PIECE_COPY};
    start(&js);
    jobs_add(&js, &o);
    r[0] = jobs_next(&js);
    r[1] = jobs_next(&js);
    HOLDS(r[1] && !jobs_next(&js));
    CHECK_EQ(r[0]->off, 8192);
    CHECK_EQ(r[0]->bytes, READ_BYTES);
    CHECK_EQ(r[0]->dst, (uint64_t)r[0]->id * READ_BYTES);
    CHECK_EQ(r[0]->copy_from, r[0]->dst + 4000);
    CHECK_EQ(r[0]->copy_to, 77);
    CHECK_EQ(r[0]->n_copy, READ_BYTES - 4000);
    CHECK_EQ(r[1]->off, 8192 + READ_BYTES);
    CHECK_EQ(r[1]->bytes, READ_ALIGN);
    CHECK_EQ(r[1]->need, 4050);
    CHECK_EQ(r[1]->copy_from, (uint64_t)r[1]->id * READ_BYTES);
    CHECK_EQ(r[1]->copy_to, 77 + READ_BYTES - 4000);
    CHECK_EQ(r[1]->n_copy, 4050);
    res = jobs_result(&js, r[0], 3 * 4096); /* short: the copy is of the whole */
    CHECK_EQ(res.again, 1);
    CHECK_EQ(r[0]->dst, (uint64_t)r[0]->id * READ_BYTES + 3 * 4096);
    HOLDS(!jobs_work_next(&js, &w));
    res = jobs_result(&js, r[0], READ_BYTES - 3 * 4096);
    HOLDS(!res.again && res.work && !res.ended);
    CHECK_EQ(r[0]->n_copy, READ_BYTES - 4000);
    res = jobs_result(&js, r[1], 4096);
    HOLDS(res.work && !res.ended);
    CHECK(js.out == 2, "a buffer is in use until it was copied");
    HOLDS(jobs_work_next(&js, &w) && w.read == r[0]);
    res = jobs_work_over(&js, &w, 1);
    HOLDS(!res.ended);
    HOLDS(jobs_work_next(&js, &w) && w.read == r[1]);
    HOLDS(!jobs_work_next(&js, &(struct job_work){0}));
    res = jobs_work_over(&js, &w, 1);
    HOLDS(res.ended && !res.why);
    CHECK_EQ(js.out, 0);
    jobs_free(&js);
}

/* A piece is hashed when its last read is over, and the order ends after that. */
static void test_checked_piece(void)
{
    struct jobs js;
    struct order o = one(1, PRIO_DEMAND, 4096, 2 * READ_BYTES, 2 * READ_BYTES);
    struct job_read *r[3];
    struct job_work w;
    struct job_result res;

    start(&js);
    for (int wrong = 0; wrong < 2; wrong++) {
        o.number = 1 + (uint64_t)wrong * SLOTS; /* the same slot again */
        o.n_pieces = 2;
        o.piece[0].flags = o.piece[1].flags = PIECE_CHECK;
        o.piece[1].shard = 3;
        o.piece[1].bytes = o.piece[1].need = 4096;
        o.piece[1].file_off = 12345 * 4096;
        CHECK_EQ(jobs_add(&js, &o), 0);
        r[0] = jobs_next(&js);
        res = jobs_result(&js, r[0], READ_BYTES); /* over before the piece's next read was given */
        HOLDS(!res.work && !jobs_work_next(&js, &w));
        r[1] = jobs_next(&js);
        r[2] = jobs_next(&js);
        res = jobs_result(&js, r[2], 4096);
        HOLDS(res.work && jobs_work_next(&js, &w) && !w.read);
        CHECK_EQ(w.piece, 1);
        res = jobs_result(&js, r[1], READ_BYTES);
        HOLDS(res.work && !res.ended);
        res = jobs_work_over(&js, &w, !wrong);
        HOLDS(!res.ended == !wrong);
        if (wrong) { /* the other piece is not hashed any more */
            HOLDS(!jobs_work_next(&js, &w));
            CHECK_EQ(res.report, -EBADMSG);
            CHECK_EQ(res.at, 12345 * 4096);
            CHECK_EQ(res.shard, 3);
            CHECK_EQ(res.piece, 1);
            CHECK_EQ(res.why, ORDER_WHY_CHECKSUM);
            continue;
        }
        HOLDS(jobs_work_next(&js, &w) && w.piece == 0);
        HOLDS(!jobs_work_next(&js, &(struct job_work){0}));
        res = jobs_work_over(&js, &w, 1);
        HOLDS(res.ended && !res.why && !res.report);
    }
    CHECK_EQ(js.n_open, 0);
    jobs_free(&js);
}

/* An order fails while a piece of it is being hashed: it ends after that. */
static void test_failed_order_waits_for_its_hash(void)
{
    struct jobs js;
    struct order o = one(1, PRIO_DEMAND, 0, 4096, 4096);
    struct job_read *r[2];
    struct job_work w;
    struct job_result res;

    start(&js);
    o.n_pieces = 2;
    o.piece[0].flags = PIECE_CHECK;
    o.piece[1] = o.piece[0];
    jobs_add(&js, &o);
    r[0] = jobs_next(&js);
    r[1] = jobs_next(&js);
    jobs_result(&js, r[0], 4096);
    HOLDS(jobs_work_next(&js, &w));
    res = jobs_result(&js, r[1], -EBADF);
    HOLDS(res.report == -EBADF && res.piece == 1 && !res.ended);
    res = jobs_work_over(&js, &w, 0);
    HOLDS(!res.report && res.ended && res.why == ORDER_WHY_IO);
    jobs_free(&js);
}

static void test_cancel(void)
{
    struct jobs js;
    struct order o = one(1, PRIO_PREFETCH, 0, 8 * READ_BYTES, 8 * READ_BYTES);
    struct order waiting = one(2, PRIO_WARM, 0, 4096, 4096), all_out = one(3, PRIO_DEMAND, 0, 4096, 4096);
    struct job_read *r[4];
    struct job_result res;

    start(&js);
    jobs_add(&js, &o);
    jobs_add(&js, &waiting);
    jobs_add(&js, &all_out);
    for (int i = 0; i < 4; i++)
        r[i] = jobs_next(&js);
    CHECK_EQ(jobs_order(r[0])->number, 3);
    res = jobs_cancel(&js, 2); /* nothing of it is out: it ends at once */
    HOLDS(res.ended && res.why == ORDER_WHY_CANCELLED && res.number == 2 && !res.report);
    res = jobs_cancel(&js, 1); /* three reads are out: with the last of them */
    HOLDS(!res.ended);
    res = jobs_cancel(&js, 3); /* nothing to drop: it goes on to its end */
    HOLDS(!res.ended);
    HOLDS(!jobs_next(&js));
    res = jobs_result(&js, r[0], 4096);
    HOLDS(res.ended && !res.why && res.number == 3);
    res = jobs_result(&js, r[1], READ_BYTES);
    HOLDS(!res.ended);
    res = jobs_result(&js, r[2], -EIO); /* not tried again, not told */
    HOLDS(!res.ended && !res.again && !res.report);
    CHECK_EQ(jobs_add(&js, &(struct order[]){one(1 + SLOTS, 0, 0, 4096, 4096)}[0]), -EEXIST);
    res = jobs_result(&js, r[3], 4096); /* short: not gone on with */
    HOLDS(res.ended && res.why == ORDER_WHY_CANCELLED && res.number == 1 && !res.again);
    CHECK(!jobs_next(&js) && !js.out && !js.low_out && !js.n_open, "something is left");
    for (uint64_t n = 1; n <= 4; n++) { /* ended, unknown */
        res = jobs_cancel(&js, n);
        HOLDS(!res.ended);
        CHECK_EQ(jobs_raise(&js, n, PRIO_DEMAND), 0);
    }
    jobs_free(&js);
}

/* Demand for what is being prefetched: before the other prefetches, and in the places for demand. */
static void test_raise(void)
{
    struct jobs js;
    struct order a = one(1, PRIO_PREFETCH, 0, 8 * READ_BYTES, 8 * READ_BYTES);
    struct order b = one(2, PRIO_PREFETCH, 0, 2 * READ_BYTES, 2 * READ_BYTES);
    struct order c = one(3, PRIO_DEMAND, 0, READ_BYTES, READ_BYTES);
    struct job_read *r[4];
    struct job_result res;

    start(&js);
    jobs_add(&js, &a);
    jobs_add(&js, &b);
    for (int i = 0; i < 3; i++)
        r[i] = jobs_next(&js);
    CHECK(!jobs_next(&js), "one place is kept for demand");
    CHECK_EQ(jobs_raise(&js, 2, PRIO_WARM), 0); /* less urgent */
    CHECK_EQ(jobs_raise(&js, 2, PRIO_DEMAND), 1);
    jobs_add(&js, &c);
    r[3] = jobs_next(&js);
    HOLDS(r[3] && jobs_order(r[3])->number == 2);
    CHECK_EQ(js.low_out, 3);
    CHECK_EQ(jobs_raise(&js, 1, PRIO_DEMAND), 1); /* its reads that are out count as demanded, too */
    CHECK_EQ(js.low_out, 0);
    for (int i = 0; i < 3; i++)
        jobs_result(&js, r[i], READ_BYTES);
    CHECK_EQ(jobs_order(r[0] = jobs_next(&js))->number, 2);
    CHECK_EQ(jobs_order(r[1] = jobs_next(&js))->number, 3);
    CHECK_EQ(jobs_order(r[2] = jobs_next(&js))->number, 1);
    res = jobs_result(&js, r[0], READ_BYTES);
    HOLDS(!res.ended);
    res = jobs_result(&js, r[3], READ_BYTES);
    HOLDS(res.ended && !res.why);
    CHECK_EQ(js.low_out, 0);
    jobs_free(&js);
}

/* Random orders, flags, results, cancels, raises: every order ends once, and only when nothing of it
 * is out; with no cancel every wanted byte is read once. */
static void test_random(int with_cancel)
{
    struct jobs js;
    uint64_t number = 0, ended = 0, wanted = 0, read = 0, cancelled = 0, twice = 0;
    struct job_read *out[DEPTH];
    struct job_work work[2];
    unsigned n_out = 0, n_work = 0;
    unsigned char open[2001] = {0};

    start(&js);
    srand(1 + (unsigned)with_cancel);
    while (ended < 2000) {
        struct job_result res[4] = {0};
        struct job_read *r = NULL;
        if (number < 2000 && number - ended < SLOTS && rand() % 2) {
            struct order o = one(++number, (uint32_t)rand() % 3, 0, 0, 0);
            uint64_t sum = 0;
            o.n_pieces = 1 + (uint32_t)rand() % (ORDER_PIECES / 4);
            for (uint32_t i = 0; i < o.n_pieces; i++) {
                struct order_piece *p = &o.piece[i];
                p->need = 1 + (uint64_t)(rand() % (3 * (int)READ_BYTES));
                p->flags = (uint32_t)rand() % 4;
                p->file_off = p->flags & PIECE_COPY ? (uint64_t)rand() % 9999 : 0;
                p->bytes = p->flags & PIECE_COPY ? p->need : (p->need + 4095) / 4096 * 4096;
                sum += p->need + (p->flags & PIECE_COPY ? p->file_off % 4096 : 0);
            }
            if (jobs_add(&js, &o) < 0) { /* an older order ended late; try the number again */
                number--;
            } else {
                wanted += sum;
                open[number] = 1;
            }
        }
        while (n_out < DEPTH && (r = jobs_next(&js)))
            out[n_out++] = r;
        if (n_out && rand() % 4) {
            unsigned k = (unsigned)rand() % n_out;
            uint64_t got = out[k]->need;
            if (rand() % 4 == 0)
                got = got * ((unsigned)rand() % 100) / 100;
            if (got >= out[k]->need || got >= 4096)
                read += got >= out[k]->need ? out[k]->need : got & ~4095ull;
            else
                got = out[k]->need, read += got;
            res[0] = jobs_result(&js, out[k], (int64_t)got);
            if (!res[0].again)
                out[k] = out[--n_out];
        }
        if (n_work < 2 && rand() % 2)
            n_work += (unsigned)jobs_work_next(&js, &work[n_work]);
        if (n_work && rand() % 2) {
            res[1] = jobs_work_over(&js, &work[0], 1);
            work[0] = work[--n_work];
        }
        if (with_cancel && number && rand() % 8 == 0)
            res[2] = jobs_cancel(&js, number - (uint64_t)rand() % number % SLOTS);
        if (number && rand() % 4 == 0)
            jobs_raise(&js, number - (uint64_t)rand() % number % SLOTS, (uint32_t)rand() % 3);
        for (int i = 0; i < 3; i++) {
            if (!res[i].ended)
                continue;
            twice += !open[res[i].number];
            open[res[i].number] = 0;
            ended++;
            cancelled += res[i].why == ORDER_WHY_CANCELLED;
            for (unsigned k = 0; k < n_out; k++)
                twice += jobs_order(out[k])->number == res[i].number;
            for (unsigned k = 0; k < n_work; k++)
                twice += jobs_order_of(work[k].job)->number == res[i].number;
        }
    }
    CHECK_EQ(ended, 2000);
    CHECK_EQ(twice, 0);
    CHECK(with_cancel ? cancelled > 100 && read < wanted : read == wanted, "%llu of %llu, %llu cancelled",
          (unsigned long long)read, (unsigned long long)wanted, (unsigned long long)cancelled);
    CHECK_EQ(js.out, 0);
    CHECK_EQ(js.low_out, 0);
    CHECK_EQ(js.n_open, 0);
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
    REFUSED(o.kind = 4);
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
    REFUSED(o.flags = 2);
    REFUSED(o.piece[0].flags = 4);
    /* any bytes, copied */
    const struct order_piece copied = {
        .file_off = 99990, .bytes = 10, .need = 10, .dst = (1 << 20) - 10, .flags = PIECE_COPY | PIECE_CHECK};
    o = good;
    o.piece[0] = copied;
    CHECK_EQ(check_order(&o, 7, &b, &e), 0);
    REFUSED((o.piece[0] = copied, o.piece[0].need = 9));
    REFUSED((o.piece[0] = copied, o.piece[0].need = o.piece[0].bytes = 0));
    REFUSED((o.piece[0] = copied, o.piece[0].file_off++));
    REFUSED((o.piece[0] = copied, o.piece[0].file_off = (uint64_t)-5));
    REFUSED((o.piece[0] = copied, o.piece[0].dst++));
    REFUSED((o.piece[0] = copied, o.piece[0].dst = (uint64_t)-5));
    REFUSED((o.piece[0] = copied, o.piece[0].seg = 1));
    for (uint32_t kind = ORDER_CANCEL; kind <= ORDER_RAISE; kind++) {
        const struct order change = {.number = 7, .kind = kind, .target = 6};
        CHECK_EQ(check_order(&change, 7, &b, &e), 0);
        REFUSED((o = change, o.target = 0));
        REFUSED((o = change, o.target = 7));
        REFUSED((o = change, o.n_pieces = 1));
        REFUSED((o = change, o.flags = ORDER_SOFT));
        REFUSED((o = change, o.prio = 3));
    }
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
    test_copied_piece();
    test_checked_piece();
    test_failed_order_waits_for_its_hash();
    test_cancel();
    test_raise();
    test_random(0);
    test_random(1);
    test_check();
    return test_end();
}
