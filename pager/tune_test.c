/* The choice of a read's size and of the depth against disks that are made up: what each candidate gives is
 * told by a function. */
#include "pager/tune.h"
#include "tests/test.h"

#define MIB (1ull << 20)

struct disk {
    double (*rate)(struct tune_choice c, uint64_t now); /* bytes/s */
    uint64_t now, bytes;                                /* so far */
};

static double same(struct tune_choice c, uint64_t now)
{
    (void)c, (void)now;
    return 1e9;
}
static double likes_large(struct tune_choice c, uint64_t now)
{
    (void)now;
    return c.read_bytes >= 2 * MIB ? 2e9 : 1e9;
}
static double likes_depth(struct tune_choice c, uint64_t now)
{
    (void)now;
    return 1e8 * c.depth;
}
static double likes_default(struct tune_choice c, uint64_t now)
{
    (void)now;
    return c.read_bytes == 512u << 10 && c.depth == 16 ? 2e9 : 1e9;
}
/* The same for all, but for half a second in which somebody else uses the disk. */
static double interrupted(struct tune_choice c, uint64_t now)
{
    return likes_large(c, now) * (now > 200000000 && now < 500000000 ? 0.2 : 1);
}

/* Reads of a load until `bytes` have come. */
static void load(struct tune *t, struct disk *d, uint64_t bytes)
{
    for (uint64_t end = d->bytes + bytes; d->bytes < end;) {
        d->bytes += t->now.read_bytes;
        d->now += (uint64_t)(t->now.read_bytes / d->rate(t->now, d->now) * 1e9);
        tune_came(t, t->now.read_bytes, d->now, 1, 0, 0);
    }
}

static void after_a_load(double (*rate)(struct tune_choice, uint64_t), uint32_t read_bytes, uint32_t depth)
{
    struct disk d = {.rate = rate};
    struct tune t;

    tune_init(&t);
    load(&t, &d, 3072 * MIB);
    CHECK_EQ(t.how, TUNE_MEASURED);
    CHECK(t.now.read_bytes == read_bytes && t.now.depth == depth, "reads of %u, %u out", t.now.read_bytes,
          t.now.depth);
    CHECK_EQ(t.trying, 0);
    CHECK(t.now.low_depth > 0 && t.now.low_depth < t.now.depth, "%u", t.now.low_depth);
    CHECK((uint64_t)t.now.low_depth * t.now.read_bytes <= TUNE_LOW_BYTES, "%u", t.now.low_depth);
}

static void test_little(void)
{
    struct disk d = {.rate = likes_large};
    struct tune t;

    tune_init(&t);
    load(&t, &d, 100 * MIB);
    CHECK_EQ(t.how, TUNE_DEFAULT);
    CHECK(t.trying, "%d", t.trying);
    CHECK_EQ(tune_came(&t, 4096, d.now, 0, 0, 0), 1); /* the load is over */
    CHECK_EQ(t.now.read_bytes, 512 << 10);
    CHECK_EQ(t.now.depth, 16);
    CHECK_EQ(t.trying, 0);
    load(&t, &d, 3072 * MIB); /* another time, it goes on */
    CHECK_EQ(t.how, TUNE_MEASURED);
}

/* Nothing is tried while somebody waits, and reads by way of buffers of a fixed size say nothing. */
static void test_demand(void)
{
    struct tune_choice def = tune_candidate(1);
    struct disk d = {.rate = same};
    struct tune t;

    tune_init(&t);
    for (int i = 0; i < 4000; i++)
        CHECK_EQ(tune_came(&t, MIB, (uint64_t)i * 1000000, 1, i & 1, !(i & 1)), 0);
    load(&t, &d, 100 * MIB);
    CHECK_EQ(t.now.low_depth, t.now.depth); /* while it is tried */
    CHECK_EQ(tune_came(&t, MIB, d.now, 1, 0, 1), 1);
    CHECK(!memcmp(&t.now, &def, sizeof def), "reads of %u, %u out", t.now.read_bytes, t.now.depth);
}

static void test_fixed(void)
{
    static const char *bad[] = {"",      "1024",   "1024x",  "x8",     "1024x1", "1024x33",
                                "6x8",   "0x8",    "4096x8", "1024x8 ", "-4x8"};
    struct disk d = {.rate = likes_default};
    struct tune t;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tune_init(&t);
        CHECK_EQ(tune_fix(&t, bad[i]), -1);
        CHECK_EQ(t.how, TUNE_DEFAULT);
    }
    CHECK_EQ(tune_fix(&t, "1024x8"), 0);
    load(&t, &d, 3072 * MIB);
    CHECK_EQ(t.how, TUNE_FIXED);
    CHECK_EQ(t.now.read_bytes, MIB);
    CHECK_EQ(t.now.depth, 8);
}

int main(void)
{
    after_a_load(same, 2048 << 10, 4); /* no more out than by default, then the largest reads */
    after_a_load(likes_large, 2048 << 10, 4);
    after_a_load(likes_depth, 512 << 10, 32);
    after_a_load(likes_default, 512 << 10, 16);
    after_a_load(interrupted, 2048 << 10, 4);
    test_little();
    test_demand();
    test_fixed();
    return test_end();
}
