/* When a card's worker is replaced, and when no more. */
#include "coordinator/supervise/lives.h"

#include <string.h>

#define FIRST_WAIT_NS 100000000 /* after one failure; four times as long after the next */

int64_t life_failed(struct life *l, uint64_t now)
{
    int64_t wait = FIRST_WAIT_NS;
    uint32_t n = 1;

    memmove(l->failed + 1, l->failed, sizeof l->failed - sizeof *l->failed);
    l->failed[0] = now;
    while (n < LIFE_FAILURES && l->failed[n] && now - l->failed[n] < LIFE_WINDOW_S * 1000000000ull) {
        wait *= 4;
        n++;
    }
    return n == LIFE_FAILURES ? -1 : wait;
}
