/* How long a successor waits, and which failure is one too many. */
#include "coordinator/supervise/lives.h"

#include "tests/test.h"

#define S 1000000000ull

int main(void)
{
    struct life l = {0};

    CHECK_EQ(life_failed(&l, 10 * S), 100000000);
    CHECK_EQ(life_failed(&l, 20 * S), 400000000);
    CHECK_EQ(life_failed(&l, 75 * S), 400000000); /* the first is more than a minute ago */
    CHECK_EQ(life_failed(&l, 79 * S), -1);
    l = (struct life){0};
    for (uint64_t t = 1; t < 1000; t += 40) /* now and then, for ever */
        CHECK(life_failed(&l, t * S) > 0, "at %lu s", (unsigned long)t);
    l = (struct life){0};
    CHECK_EQ(life_failed(&l, 5), 100000000); /* the clock may begin anywhere */
    CHECK_EQ(life_failed(&l, 6), 400000000);
    CHECK_EQ(life_failed(&l, 7), -1);
    return test_end();
}
