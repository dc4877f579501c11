/* Passes with times that are made up: when is reading ahead on? */
#include "coordinator/residency/prefetch.h"

#include "tests/test.h"

static uint64_t used, wasted;

/* n passes that take `with` or `without`; every with-pass reads one expert for a call and `waste` for
 * none. Returns how many were made with reading ahead. */
static uint32_t passes(struct prefetch *p, uint32_t n, uint64_t without, uint64_t with, uint64_t waste)
{
    uint32_t on = 0;

    for (uint32_t i = 0; i < n; i++) {
        int now = p->on;
        on += (uint32_t)now;
        used += (uint64_t)now;
        wasted += (uint64_t)now * waste;
        /* every fifth pass is disturbed */
        prefetch_passed(p, (now ? with : without) * (i % 5 == 4 ? 9 : 1), used, wasted);
    }
    return on;
}

static void begin(struct prefetch *p, enum prefetch_mode mode)
{
    prefetch_start(p, mode);
    used = wasted = 0;
}

enum { FIRST = 2 * PREFETCH_FIRST * PREFETCH_WINDOW, AGAIN = 2 * PREFETCH_AGAIN * PREFETCH_WINDOW };

static void test_fixed(void)
{
    struct prefetch p;

    begin(&p, PREFETCH_ON);
    CHECK_EQ(passes(&p, 3000, 10, 1000, 9), 3000);
    begin(&p, PREFETCH_OFF);
    CHECK_EQ(passes(&p, 3000, 1000, 10, 0), 0);
    CHECK_EQ(p.trials, 0);
}

static void test_what_pays_stays(void)
{
    struct prefetch p;

    begin(&p, PREFETCH_AUTO);
    CHECK_EQ(passes(&p, FIRST, 1000, 800, 0), FIRST / 2);
    CHECK_EQ(p.trials, 1);
    CHECK(p.on && p.gain > 0.19 && p.gain < 0.21);
    CHECK_EQ(passes(&p, PREFETCH_SETTLED, 1000, 800, 0), PREFETCH_SETTLED);
    CHECK_EQ(passes(&p, AGAIN, 1000, 1200, 0), AGAIN / 2); /* tried again: it no longer does */
    CHECK_EQ(p.trials, 2);
    CHECK_EQ(passes(&p, PREFETCH_SETTLED, 1000, 1200, 0), 0);
}

static void test_what_costs_ends(void)
{
    struct prefetch p;

    begin(&p, PREFETCH_AUTO);
    passes(&p, FIRST, 800, 1000, 0);
    CHECK_EQ(passes(&p, PREFETCH_SETTLED, 800, 1000, 0), 0);
}

/* A gain between the two thresholds leaves things as they are. */
static void test_a_little_changes_nothing(void)
{
    struct prefetch p;

    begin(&p, PREFETCH_AUTO);
    passes(&p, FIRST, 1000, 985, 0);
    CHECK(!p.on);
    passes(&p, PREFETCH_SETTLED, 1000, 985, 0);
    passes(&p, AGAIN, 1000, 900, 0);
    CHECK(p.on);
    passes(&p, PREFETCH_SETTLED, 1000, 985, 0);
    passes(&p, AGAIN, 1000, 985, 0);
    CHECK(p.on && p.trials == 3);
}

static void test_waste_is_no_gain(void)
{
    struct prefetch p;

    begin(&p, PREFETCH_AUTO);
    passes(&p, FIRST, 1000, 800, 3);
    CHECK(!p.on && p.gain > 0.19);
    begin(&p, PREFETCH_AUTO);
    passes(&p, FIRST, 1000, 800, 2);
    CHECK(p.on);
}

int main(void)
{
    test_fixed();
    test_what_pays_stays();
    test_what_costs_ends();
    test_a_little_changes_nothing();
    test_waste_is_no_gain();
    return test_end();
}
