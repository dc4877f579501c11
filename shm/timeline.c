/* The writing end; what was written is taken out by coordinator/supervise/tracer.c. */
#include "shm/timeline.h"

void timeline_put(const struct timeline *t, enum timeline_lane_of lane, const struct timeline_record *r)
{
    struct timeline_lane *l = &t->ring->lane[lane];
    uint64_t n = atomic_load_explicit(&l->next, memory_order_relaxed);
    struct timeline_record *to = &l->record[n % TIMELINE_RECORDS];

    if (n - atomic_load_explicit(&l->taken, memory_order_acquire) >= TIMELINE_RECORDS) {
        atomic_store_explicit(&l->dropped, atomic_load_explicit(&l->dropped, memory_order_relaxed) + 1,
                              memory_order_relaxed);
        return;
    }
    *to = *r;
    to->pid = t->pid;
    atomic_store_explicit(&l->next, n + 1, memory_order_release);
}
