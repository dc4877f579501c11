/* Least recently used. The residency policies to come stand beside this one. */
#include "coordinator/residency/lru.h"

uint32_t lru_pick(const struct place *p, uint32_t n, const _Atomic uint64_t *used, uint32_t n_experts,
                  int (*busy)(void *arg, uint32_t place), void *arg)
{
    uint32_t best = PLACE_NONE;
    uint64_t oldest = UINT64_MAX;

    for (uint32_t i = 0; i < n; i++) {
        uint64_t u;
        if (p[i].state == PLACE_FREE)
            return i;
        if (p[i].state != PLACE_RESIDENT)
            continue;
        u = atomic_load_explicit(&used[(size_t)p[i].layer * n_experts + p[i].expert],
                                 memory_order_relaxed);
        if (u < oldest && !busy(arg, i)) {
            oldest = u;
            best = i;
        }
    }
    return best;
}
