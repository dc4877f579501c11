/* The heap against a search through all. */
#include "coordinator/residency/heap.h"

#include <stdlib.h>

#include "tests/test.h"

enum { N = 60 };

int main(void)
{
    double key[N];
    int in[N] = {0}, wrong = 0;
    struct heap h;
    struct err e = {0};
    uint32_t n = 0;

    srand(1);
    CHECK(!heap_open(&h, N, &e), "%s", e.msg);
    for (int step = 0; step < 20000; step++) {
        uint32_t id = (uint32_t)rand() % N, best = HEAP_ABSENT;
        if (rand() % 3) {
            key[id] = rand() % 20; /* many ties */
            n += !in[id];
            in[id] = 1;
            heap_put(&h, id, key[id]);
        } else {
            n -= (uint32_t)in[id];
            in[id] = 0;
            heap_take(&h, id);
        }
        for (uint32_t i = 0; i < N; i++)
            if (in[i] && (best == HEAP_ABSENT || key[i] < key[best]))
                best = i;
        wrong += h.n != n || (n && h.item[0] != best);
    }
    CHECK_EQ(wrong, 0);
    heap_close(&h);
    return test_end();
}
