#include "gpu-worker/calls_watch.h"

#include <sched.h>

#include "shm/amends.h"
#include "shm/bell.h"
#include "shm/calls.h"

enum {
    LOOKS = 8, /* between two yields */
    ASKED = 4096 /* yields between two questions whether all is well */
};

/* *at: 0 at first; shares below it were found made, and are not looked at again. */
static int made(const struct calls_watch *w, uint64_t n, uint32_t *at)
{
    uint8_t *slot = call_slot(w->g, w->calls, n);
    const struct call_item *items = (const struct call_item *)call_slot_items(slot);
    const struct call_head *head = (const struct call_head *)(slot + 64);

    for (; *at < head->n_items * w->g->n_nodes; ++*at) {
        uint32_t i = *at / w->g->n_nodes, k = *at % w->g->n_nodes, from;

        if (!share_done(w->g, w->amends, w->box, n, i, k, items[i].owner[k], &from))
            return 0;
    }
    return 1;
}

/* Now and then: what ends a wait besides its call. CALLS_MADE: nothing does. */
static int ends(const struct calls_watch *w, uint64_t start, uint32_t round, int told)
{
    if (!told)
        return round % ASKED ? CALLS_MADE : w->failed(w->arg);
    if (__atomic_load_n(w->stop, __ATOMIC_ACQUIRE))
        return CALLS_GIVEN_UP;
    return now_ns() - start > w->limit_ns ? CALLS_OVER_LIMIT : CALLS_MADE;
}

int calls_watch(struct calls_watch *w, uint64_t ticket)
{
    uint64_t start = now_ns(), told_at = 0;
    uint32_t at = 0, round = 0;
    int told = 0, end = CALLS_MADE;

    for (;; round++) {
        for (int i = 0; i < LOOKS; i++) {
            if (!told && (told = __atomic_load_n(&w->told->ticket, __ATOMIC_ACQUIRE) == ticket)) {
                if (!w->told->call)
                    return CALLS_MADE;
                told_at = now_ns();
            }
            if (told && made(w, w->told->call, &at))
                goto over;
        }
        if ((end = ends(w, start, round, told)) != CALLS_MADE)
            break;
        sched_yield(); /* workers want to work where this thread looks */
    }
over:
    if (told)
        w->waited_ns += now_ns() - told_at;
    return end;
}
