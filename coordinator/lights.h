/* Which experts were used since somebody last looked, and where they lay: what the page draws. Written by the
 * engine's threads, read by one other. While nobody watches, a note costs one load. */
#pragma once
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "coordinator/engine.h"
#include "shm/err.h"

enum light_tier { LIGHT_CARD = 1, LIGHT_RAM = 2, LIGHT_DISK = 4 };
struct light {
    uint16_t layer, expert;
    uint8_t tiers; /* of all its uses since then */
    uint8_t last;  /* 1: the last step used it, or the one in work */
};
struct lights {
    /* set by the engine while it opens, constant then; lit is released when they are there */
    uint32_t n_layers, n_experts; /* n_experts: of the layer that has most */
    uint32_t *of_layer;           /* n_layers: how many it has */
    _Atomic(_Atomic uint16_t *) lit; /* (n_layers, n_experts): tiers, above them the step of the last use; one writer
                                      * at a time, and the reader, who makes it 0; NULL: no engine yet */

    _Atomic int watched;
    _Atomic int figures;          /* set before the engine opens; 1: figures are wanted, watched or not (/metrics) */
    _Atomic uint64_t tokens, steps; /* while it was watched */
    /* one writer, the engine's thread; odd while it writes */
    _Atomic uint64_t stats_count;
    _Atomic uint64_t stats_ns;
    _Atomic uint64_t stats[(sizeof(struct engine_stats) + 7) / 8];
};

void lights_init(struct lights *l);
void lights_free(struct lights *l);
static inline int lights_on(const struct lights *l)
{
    return l && atomic_load_explicit(&l->watched, memory_order_relaxed);
}

static inline int lights_figures(const struct lights *l)
{
    return lights_on(l) || (l && atomic_load_explicit(&l->figures, memory_order_relaxed));
}

/* ---- the engine's ---- */
/* of_layer is copied. */
int lights_open(struct lights *l, uint32_t n_layers, const uint32_t *of_layer, struct err *e);
/* Only while lights_on. Any thread. */
static inline void lights_put(struct lights *l, uint32_t layer, uint32_t expert, enum light_tier tier)
{
    _Atomic uint16_t *p = atomic_load_explicit(&l->lit, memory_order_acquire) + (size_t)layer * l->n_experts + expert;
    unsigned was = atomic_load_explicit(p, memory_order_relaxed),
             step = (unsigned)atomic_load_explicit(&l->steps, memory_order_relaxed);

    atomic_store_explicit(p, (uint16_t)((was & 0xFF) | (unsigned)tier | step << 8), memory_order_relaxed);
}
void lights_step(struct lights *l, uint32_t n_tokens);
/* Is it time for new figures? */
int lights_want_stats(const struct lights *l);
void lights_put_stats(struct lights *l, const struct engine_stats *s);

/* ---- the reader's: one thread ---- */
/* From now on, or no longer. What was lit before is dark. */
void lights_watch(struct lights *l, int on);
/* Experts that were used, `most` at most, which are dark then; the others stay for the next time. */
size_t lights_take(struct lights *l, struct light *out, size_t most, uint64_t *tokens, uint64_t *steps);
/* The last figures, and when they were so (CLOCK_MONOTONIC). 0: there are none yet. */
int lights_stats(const struct lights *l, struct engine_stats *s, uint64_t *at_ns);
