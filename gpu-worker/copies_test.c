/* Copies and their pace, with a card and a clock that are this test's own: a copy takes the time that the link would
 * need, time passes by calls and sleeps alone, and nothing here depends on how quick this machine is. A copy's bytes
 * are there when its time is over, and what it is made from must be the same then as when it was begun. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

#include "gpu-worker/card_kind.h"
#include "shm/bell.h"
#include "tests/test.h"

static uint64_t clock_now(void);
static int clock_sleep(const struct timespec *t, struct timespec *left);
#define now_ns clock_now
#define nanosleep clock_sleep
#include "gpu-worker/copies.c"

#define SLAB (40ull << 20)
#define POOL (40ull << 20)
#define MS 1000000ull
#define CALL_NS (MS / 2)          /* a decode publishes a call so often */
#define LOOK_NS 30                /* what calls take */
#define BEGIN_NS 3000
#define MARK_NS 1000
#define WAY_NS 10000              /* from the link's end to the word that it is over */
#define AWAKE_NS 1000             /* a sleep takes that much longer at least */
#define FOREVER (3600 * 1000 * MS)
#define RATE 50e9

enum { TO_MEASURE = (TRIES + 1) * MEASURED, LINES = 2 * DEPTH, NODES = 2, NEVER = -1 };
enum way { STRAIGHT, BUFFERED, BY_TURNS };

struct slabs {
    uint64_t chunk; /* ends a run */
    enum way way;
    int settled;
};
struct under_way {
    uint8_t *to;
    const uint8_t *from;
    uint64_t n, over_at, sum;
};
struct fake {
    struct card card;
    uint64_t now, late_ns, sleeps, poll_ns;
    unsigned late_each; /* of so many sleeps one is late */
    double rate;
    uint64_t full_from, full_to; /* copies of these numbers have the link for themselves, others the half of it */
    int moves, stuck, decodes;
    long calls, fail_at;
    size_t n_taken;
    struct under_way line[LINES];
    uint64_t first, n_copies; /* of those under way; ever */
    unsigned deepest;
    uint64_t free_at, idle_ns, mark[CARD_MARKS];
    double pace, level, most, highest; /* bytes a ns; begun more than that: now, allowed, at most */
    uint64_t level_at, begun;
    struct maps m;
    struct pool pool;
    struct slabs slabs;
    struct copies *copies;
};
static struct fake f;
static uint8_t slab[NODES][SLAB], pool[POOL];
static struct calls calls;
static uint8_t scratch[PIECE], one[PIECE], other[PIECE];
static uint8_t *const memory[] = {scratch, one, other}; /* as it is asked for */

static void settle(void)
{
    for (; f.first < f.n_copies && f.line[f.first % LINES].over_at <= f.now; f.first++) {
        struct under_way *u = &f.line[f.first % LINES];
        if (!f.moves)
            continue;
        CHECK(XXH3_64bits(u->from, u->n) == u->sum, "written while it was copied");
        memcpy(u->to, u->from, u->n);
    }
}
static void pass(uint64_t ns)
{
    f.now += ns;
    if (f.decodes)
        atomic_store_explicit(&calls.head, f.now / CALL_NS, memory_order_relaxed);
    settle();
    if (f.now > FOREVER) {
        CHECK(0, "waits for ever");
        exit(test_end());
    }
}
static uint64_t clock_now(void)
{
    pass(LOOK_NS);
    return f.now;
}
static int clock_sleep(const struct timespec *t, struct timespec *left)
{
    uint64_t late = f.late_each && f.sleeps % f.late_each == 0 ? f.late_ns : 0;

    (void)left;
    f.sleeps++;
    pass((uint64_t)t->tv_sec * 1000 * MS + (uint64_t)t->tv_nsec + AWAKE_NS + late);
    return 0;
}

/* ---- in place of slabs.c ---- */

int slabs_settled(const struct slabs *s)
{
    return s->settled;
}
uint64_t slabs_run(const struct slabs *s, uint32_t node, uint64_t off, uint64_t bytes, int *straight)
{
    uint64_t left = s->chunk - off % s->chunk;

    *straight = s->way == BY_TURNS ? (off / s->chunk + node) % 2 == 0 : s->way == STRAIGHT;
    return bytes < left ? bytes : left;
}

/* ---- the card ---- */

static int fails(struct err *e)
{
    return f.calls++ == f.fail_at ? err_set(e, -EIO, "the card fails") : 0;
}
static int use(struct card *c, struct err *e)
{
    (void)c;
    return fails(e);
}
static int take(void **out, uint64_t bytes, struct err *e)
{
    int rc = fails(e);

    if (rc)
        return rc;
    if (bytes > PIECE || f.n_taken == sizeof memory / sizeof *memory)
        return err_set(e, -ENOMEM, "more memory than copies need");
    *out = memory[f.n_taken++];
    return 0;
}
static int alloc(struct card *c, uint64_t bytes, const char *what, void **out, struct err *e)
{
    (void)c, (void)what;
    return take(out, bytes, e);
}
static int shared(struct card *c, uint64_t bytes, const char *what, void **host, void **dev, struct err *e)
{
    int rc = alloc(c, bytes, what, host, e);

    *dev = *host;
    return rc;
}
/* More than the pace since any moment: what is begun fills, time drains. */
static void fill(uint64_t bytes)
{
    f.level -= (double)(f.now - f.level_at) * f.pace;
    f.level = (f.level > 0 ? f.level : 0) + (double)bytes;
    f.level_at = f.now;
    f.begun += bytes;
    if (f.level > f.highest)
        f.highest = f.level;
}
static uint64_t over_at(void)
{
    return f.stuck ? UINT64_MAX : f.free_at + WAY_NS;
}
static void copy(void *to, const void *from, uint64_t bytes)
{
    int full = f.n_copies >= f.full_from && f.n_copies < f.full_to;
    uint64_t ns = (uint64_t)((double)bytes / (full ? f.rate : f.rate / 2) * 1e9);
    struct under_way *u = &f.line[f.n_copies % LINES];

    CHECK(bytes && bytes <= PIECE, "a copy of %lu bytes", (unsigned long)bytes);
    CHECK(f.n_copies - f.first < DEPTH, "%d copies are on the way", DEPTH);
    if (f.now > f.free_at) {
        f.idle_ns += f.now - f.free_at;
        f.free_at = f.now;
    }
    f.free_at += ns;
    *u = (struct under_way){to, from, bytes, over_at(), f.moves ? XXH3_64bits(from, bytes) : 0};
    f.n_copies++;
    if (f.n_copies - f.first > f.deepest)
        f.deepest = (unsigned)(f.n_copies - f.first);
    pass(BEGIN_NS);
}
/* A copy from or to slabs lies in one run, and that is registered. */
static void lies_in_a_run(const uint8_t *host, uint64_t bytes)
{
    int straight = 0;

    for (uint32_t k = 0; k < NODES; k++)
        if (host >= slab[k] && host < slab[k] + SLAB)
            CHECK(slabs_run(&f.slabs, k, (uint64_t)(host - slab[k]), bytes, &straight) == bytes && straight,
                  "%lu bytes are not registered as one", (unsigned long)bytes);
}
static int copy_in(struct card *c, void *dev, const void *host, uint64_t bytes, struct err *e)
{
    int rc = fails(e);

    (void)c;
    if (rc)
        return rc;
    if (dev != scratch) /* what the link is measured with */
        fill(bytes);
    lies_in_a_run(host, bytes);
    copy(dev, host, bytes);
    return 0;
}
static int copy_out(struct card *c, void *host, const void *dev, uint64_t bytes, struct err *e)
{
    int rc = fails(e);

    (void)c;
    if (rc)
        return rc;
    fill(bytes);
    lies_in_a_run(host, bytes);
    if (f.moves)
        memset(host, 0xee, bytes); /* no byte is there before its time is over */
    copy(host, dev, bytes);
    return 0;
}
static int mark(struct card *c, unsigned i, struct err *e)
{
    int rc = fails(e);

    (void)c;
    if (rc)
        return rc;
    CHECK(i < CARD_MARKS, "mark %u", i);
    CHECK(i >= DEPTH || f.mark[i] <= f.now, "mark %u is wanted for a copy that is on the way", i);
    f.mark[i] = over_at();
    pass(MARK_NS);
    return 0;
}
static int marked(struct card *c, unsigned i, struct err *e)
{
    int rc = fails(e);

    (void)c;
    pass(f.stuck ? MS : f.poll_ns);
    return rc ? rc : f.mark[i] <= f.now;
}
static const struct card_kind kind = {
    .use = use,
    .alloc = alloc,
    .shared = shared,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .mark = mark,
    .marked = marked,
};

/* ---- the rig ---- */

static void set(int device, enum way way, double rate)
{
    f = (struct fake){.card = {.kind = &kind, .device = device, .name = "card of a test"},
                      .now = 1000 * MS,
                      .poll_ns = MARK_NS,
                      .rate = rate,
                      .full_to = UINT64_MAX,
                      .fail_at = NEVER,
                      .pool = {pool, POOL},
                      .slabs = {.chunk = SLAB, .way = way}};
    atomic_store(&calls.head, 0);
    f.m.calls = &calls;
    for (int k = 0; k < NODES; k++)
        f.m.slabs[k] = slab[k];
}
static int open_copies(struct err *e)
{
    return copies_open(&f.card, &f.m, &f.pool, &f.slabs, &f.copies, e);
}
static void begin(int device, enum way way, double rate)
{
    struct err e = {0};

    set(device, way, rate);
    CHECK(!open_copies(&e), "%s", e.msg);
}
static void put(uint64_t bytes)
{
    struct err e = {0};

    CHECK(!copies_put(f.copies, 0, 0, 0, bytes, &e), "%s", e.msg);
}
static void put_all_marks(void)
{
    put(DEPTH / 2 * (uint64_t)PIECE);
    put(DEPTH / 2 * (uint64_t)PIECE);
}
static void get(uint64_t bytes)
{
    struct err e = {0};

    CHECK(!copies_get(f.copies, 0, 0, 0, bytes, &e), "%s", e.msg);
}

/* ---- bytes ---- */

static uint8_t byte(uint64_t i)
{
    return (uint8_t)(i * 2654435761u >> 13);
}
/* How often it had to look again. */
static int wait_for(unsigned i)
{
    struct err e = {0};
    int n = 0;

    CHECK(!copies_mark(f.copies, i, &e), "%s", e.msg);
    for (; !copies_over(f.copies, i, &e); n++)
        copies_nap();
    return n;
}
static int clean(const uint8_t *p, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++)
        if (p[i])
            return 0;
    return 1;
}
static void there_and_back(enum way way, uint64_t n)
{
    const uint64_t off = 4091, dst = 12345, back = 777, beside = 64;
    struct err e = {0};

    begin(0, way, RATE);
    f.moves = 1;
    f.slabs.chunk = PIECE + PIECE / 2 + 3; /* runs that end anywhere */
    memset(pool, 0, dst + n + beside);
    memset(slab[1], 0, back + n + beside);
    CHECK(!copies_put(f.copies, 0, off, dst, n, &e), "%s", e.msg);
    CHECK(wait_for(1), "copied in no time");
    CHECK(!memcmp(pool + dst, slab[0] + off, n), "%lu bytes, way %d: others in the pool", (unsigned long)n, way);
    CHECK(clean(pool, dst) && clean(pool + dst + n, beside), "bytes beside in the pool");
    CHECK(!copies_get(f.copies, 1, back, dst, n, &e), "%s", e.msg);
    wait_for(0);
    CHECK(!memcmp(slab[1] + back, slab[0] + off, n), "%lu bytes, way %d: others in the slab", (unsigned long)n, way);
    CHECK(clean(slab[1], back) && clean(slab[1] + back + n, beside), "bytes beside in the slab");
    copies_close(f.copies);
}
static void bytes(void)
{
    static const uint64_t sizes[] = {1, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE + 13};

    for (uint64_t i = 0; i < SLAB; i++)
        slab[0][i] = byte(i);
    for (enum way way = STRAIGHT; way <= BY_TURNS; way++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            there_and_back(way, sizes[i]);
}

/* ---- no decode: all of the link, and no more at once than there are marks ---- */

static void at_once(int device)
{
    begin(device, STRAIGHT, RATE);
    f.decodes = f.slabs.settled = device < 0; /* an emulated link has no pace */
    f.sleeps = 0;
    put_all_marks();
    CHECK_EQ(f.sleeps, 0);
    CHECK_EQ(f.n_copies, (device < 0 ? 0 : TO_MEASURE) + DEPTH);
    copies_close(f.copies);
}
static void all_of_the_link(void)
{
    at_once(0);
    at_once(-1);
    begin(0, STRAIGHT, RATE);
    put(PIECE);
    f.idle_ns = 0;
    f.calls = 0;
    for (int i = 0; i < 16; i++)
        put(9ull * PIECE);
    CHECK_EQ(f.idle_ns, 0);
    CHECK(f.calls < 16 * 9 * 4, "%ld calls of the card: it looks without a nap", f.calls); /* 3 each, some looks more */
    CHECK_EQ(f.deepest, DEPTH);
    pass(2 * MS); /* all of them are over */
    f.decodes = 1;
    pass(CALL_NS);
    f.sleeps = 0;
    put(PIECE); /* a decode that begins does not ask what there was before */
    CHECK_EQ(f.sleeps, 0);
    copies_close(f.copies);
}

/* ---- a decode in flight ---- */

static void watch(uint64_t credit_ns)
{
    f.pace = copies_link(f.copies) * PACE * 1e-9;
    f.most = (double)(AHEAD_NS + credit_ns) * f.pace + PIECE;
    f.level = f.highest = 0;
    f.level_at = f.now;
    f.begun = 0;
}
static void copy_for(uint64_t ns, uint64_t each)
{
    for (uint64_t until = f.now + ns; f.now < until;) {
        put(each);
        get(each);
    }
}
static void kept(const char *when)
{
    CHECK(f.highest <= f.most * 1.001, "%s, link of %.0f GB/s: %.1f MB more than the pace, %.1f allowed", when,
          f.rate * 1e-9, f.highest * 1e-6, f.most * 1e-6);
}
/* late_each: of so many sleeps one lasts late_ns too long; 0: none. */
static void beside_a_decode(enum way way, double rate, unsigned late_each, uint64_t late_ns, double at_least)
{
    const uint64_t just = MS / 10; /* made up for where none is late: what calls took */
    uint64_t start;

    begin(0, way, rate);
    f.decodes = 1;
    f.late_each = late_each;
    f.late_ns = late_ns;
    watch(late_each ? CREDIT_NS : just);
    start = f.now;
    copy_for(300 * MS, 4ull * PIECE);
    kept("beside a decode");
    if (!late_each && way == STRAIGHT && f.most < DEPTH * (double)PIECE)
        CHECK(f.sleeps <= (f.now - start) / AHEAD_NS + 1, "woken %lu times", (unsigned long)f.sleeps);
    CHECK((double)f.begun > at_least * f.pace * (double)(f.now - start), "less than the pace: %.3f of it",
          (double)f.begun / (f.pace * (double)(f.now - start)));
    copies_close(f.copies);
}
/* Calls go on, uploads do not: what was not copied then is not copied later. */
static void idle(void)
{
    static const uint64_t ms[] = {5, 10, 50};

    begin(0, STRAIGHT, RATE);
    f.decodes = 1;
    copy_for(20 * MS, PIECE);
    for (int i = 0; i < 3; i++) {
        pass(ms[i] * MS);
        watch(MS / 10);
        copy_for(20 * MS, PIECE);
        kept("after a rest");
    }
    copies_close(f.copies);
}
static void decode_ends(void)
{
    begin(0, STRAIGHT, RATE);
    f.decodes = 1;
    copy_for(20 * MS, PIECE);
    f.decodes = 0; /* its next call may only be late */
    watch(MS / 10);
    copy_for(QUIET_NS - 2 * MS, PIECE);
    kept("no call for less than the quiet");
    pass(QUIET_NS);
    f.sleeps = 0;
    put_all_marks();
    CHECK_EQ(f.sleeps, 0);
    copies_close(f.copies);
}

/* ---- the link's rate ---- */

static void about(double rate)
{
    double link = copies_link(f.copies);

    CHECK(link > 0.95 * rate && link <= rate, "%.2f GB/s seen of %.2f", link * 1e-9, rate * 1e-9);
}
static void open_beside_others(void)
{
    struct err e = {0};

    set(0, STRAIGHT, RATE);
    f.full_from = UINT64_MAX;
    CHECK(!open_copies(&e), "%s", e.msg);
    CHECK_EQ(f.n_copies, TO_MEASURE);
    about(RATE / 2);
}
static void measured(void)
{
    uint64_t n;

    open_beside_others();
    f.decodes = 1;
    put(PIECE);
    CHECK_EQ(f.n_copies, TO_MEASURE + 1); /* not while slabs are registered */
    f.decodes = 0;
    pass(2 * QUIET_NS);
    f.slabs.settled = 1;
    put_all_marks();
    n = f.n_copies;
    CHECK_EQ(n, TO_MEASURE + 1 + DEPTH);
    f.full_from = n + 3 * MEASURED; /* one try of them all */
    f.full_to = n + 4 * MEASURED;
    f.decodes = 1;
    pass(CALL_NS);
    put(PIECE);
    CHECK_EQ(f.n_copies, n + TO_MEASURE + 1);
    about(RATE);
    put(PIECE);
    CHECK_EQ(f.n_copies, n + TO_MEASURE + 2); /* once */
    copies_close(f.copies);

    begin(0, STRAIGHT, RATE);
    f.full_to = f.n_copies; /* it was free at the start */
    f.slabs.settled = f.decodes = 1;
    put(PIECE);
    CHECK_EQ(f.n_copies, 2 * TO_MEASURE + 1);
    about(RATE);
    copies_close(f.copies);
}

/* ---- errors ---- */

static void late(int rc, const struct err *e, uint64_t start)
{
    CHECK_EQ(rc, -ETIMEDOUT);
    CHECK(strstr(e->msg, f.card.name) && strstr(e->msg, "does not end"), "'%s'", e->msg);
    CHECK(f.now - start > LATE_NS && f.now - start < LATE_NS + 100 * MS, "after %.3f s",
          (double)(f.now - start) * 1e-9);
}
/* Copies go astray from the start on: n of them are begun. */
static void astray(enum way way, int out, uint64_t n)
{
    struct err e = {0};
    uint64_t start;
    int rc;

    begin(0, way, RATE);
    f.slabs.chunk = PIECE / 2;
    f.stuck = 1;
    start = f.now;
    rc = (out ? copies_get : copies_put)(f.copies, 0, 0, 0, (DEPTH + 1) * f.slabs.chunk, &e);
    late(rc, &e, start);
    CHECK_EQ(f.n_copies, TO_MEASURE + n);
    copies_close(f.copies);
}
static void astray_while_measured(void)
{
    struct err e = {0};
    uint64_t start;

    set(0, STRAIGHT, RATE);
    f.stuck = 1;
    start = f.now;
    late(open_copies(&e), &e, start);
    copies_close(f.copies);

    begin(0, STRAIGHT, RATE);
    f.stuck = f.slabs.settled = 1;
    put(PIECE);
    f.decodes = 1;
    pass(CALL_NS);
    e = (struct err){0};
    start = f.now;
    late(copies_put(f.copies, 0, 0, 0, PIECE, &e), &e, start);
    CHECK_EQ(f.n_copies, TO_MEASURE + 1);
    copies_close(f.copies);
}

/* All that copies ask a card for. */
static int all(struct err *e)
{
    int rc;

    if ((rc = open_copies(e)) || (rc = copies_put(f.copies, 0, 0, 0, 3 * f.slabs.chunk, e)))
        return rc;
    f.decodes = f.slabs.settled = 1;
    pass(CALL_NS);
    for (unsigned i = 0; i < 2; i++)
        if ((rc = copies_put(f.copies, i, 0, 0, 5 * f.slabs.chunk, e)) ||
            (rc = copies_get(f.copies, i, 0, 0, 5 * f.slabs.chunk, e)) || (rc = copies_mark(f.copies, i, e)) ||
            (rc = copies_over(f.copies, i, e)) < 0)
            return rc;
    return 0;
}
/* Whichever call of the card fails, its error is passed on, and the card is left alone from then on. */
static void each_fails(void)
{
    long n = 1;
    struct err e;

    for (long k = NEVER; k < n; k++) {
        e = (struct err){0};
        set(0, BY_TURNS, RATE);
        f.slabs.chunk = 4096;
        f.poll_ns = MS / 5;
        f.fail_at = k;
        CHECK_EQ(all(&e), k == NEVER ? 0 : -EIO);
        if (k == NEVER)
            n = f.calls;
        else
            CHECK(!strcmp(e.msg, "the card fails") && f.calls == k + 1, "call %ld of %ld, %ld more: '%s'", k, n,
                  f.calls - k - 1, e.msg);
        copies_close(f.copies);
    }
}

int main(void)
{
    bytes();
    all_of_the_link();
    beside_a_decode(STRAIGHT, RATE, 0, 0, 0.98);
    beside_a_decode(BUFFERED, 1e9, 0, 0, 0.98);
    beside_a_decode(STRAIGHT, 400e9, 0, 0, 0.98);
    beside_a_decode(STRAIGHT, RATE, 8, 3 * MS, 0.95);
    beside_a_decode(STRAIGHT, RATE, 1000, 30 * MS, 0);
    idle();
    decode_ends();
    measured();
    astray(STRAIGHT, 0, DEPTH);
    astray(BUFFERED, 0, BUFFERS);
    astray(BUFFERED, 1, 1);
    astray_while_measured();
    each_fails();
    return test_end();
}
