/* Which place an expert takes. Pure: plain values in, a place out. */
#pragma once
#include <stdint.h>

#include "shm/layout.h"

enum place_state { PLACE_FREE, PLACE_LEAVING, PLACE_READING, PLACE_RESIDENT };
struct place {
    enum place_state state;
    uint32_t layer, expert; /* who is there, is being read, or will be read when the place is left */
    uint64_t epoch;         /* PLACE_RESIDENT */
    uint64_t order;         /* PLACE_READING: the pager's order */
};
/* A free place, else the resident whose last use is the oldest and that `busy(arg, place)` does not
 * refuse; ties by lower number. used: last call by layer * n_experts + expert. PLACE_NONE: none. */
uint32_t lru_pick(const struct place *p, uint32_t n, const _Atomic uint64_t *used, uint32_t n_experts,
                  int (*busy)(void *arg, uint32_t place), void *arg);
