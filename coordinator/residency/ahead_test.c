/* The list of what is foreseen: the newest alone, whole or not at all. */
#include "coordinator/residency/ahead.h"

#include <pthread.h>

#include "tests/test.h"

static struct ahead list;

static void test_newest(void)
{
    uint32_t expert[AHEAD_MOST], many[AHEAD_MOST + 9], layer = 0, n = 0;
    uint64_t seen = 0;

    CHECK(!ahead_new(&list, seen) && !ahead_take(&list, &seen, &layer, expert, &n));
    for (uint32_t i = 0; i < AHEAD_MOST + 9; i++)
        many[i] = 1000 + i;
    ahead_tell(&list, 3, many, 5);
    ahead_tell(&list, 4, many, AHEAD_MOST + 9);
    CHECK(ahead_new(&list, seen) && ahead_take(&list, &seen, &layer, expert, &n));
    CHECK(layer == 4 && n == AHEAD_MOST && expert[AHEAD_MOST - 1] == 1000 + AHEAD_MOST - 1);
    CHECK(!ahead_new(&list, seen) && !ahead_take(&list, &seen, &layer, expert, &n));
    ahead_tell(&list, 5, many, 0);
    CHECK(ahead_take(&list, &seen, &layer, expert, &n) && layer == 5 && !n);
}

enum { LISTS = 200000 };
static void *writer(void *arg)
{
    for (uint32_t k = 1; k <= LISTS; k++) {
        uint32_t v[8], n = 1 + k % 8;
        for (uint32_t i = 0; i < n; i++)
            v[i] = k + i;
        ahead_tell(&list, k, v, n);
    }
    return arg;
}

static void test_two_threads(void)
{
    uint32_t expert[AHEAD_MOST], layer = 0, last = 0, n, wrong = 0;
    uint64_t seen = 0;
    pthread_t t;

    list = (struct ahead){0};
    CHECK(!pthread_create(&t, NULL, writer, NULL));
    while (last < LISTS)
        if (ahead_take(&list, &seen, &layer, expert, &n)) {
            wrong += layer <= last || n != 1 + layer % 8;
            for (uint32_t i = 0; i < n; i++)
                wrong += expert[i] != layer + i;
            last = layer;
        }
    pthread_join(t, NULL);
    CHECK_EQ(wrong, 0);
}

int main(void)
{
    test_newest();
    test_two_threads();
    return test_end();
}
