/* Numbered orders from the coordinator to the pager, answered in the pager's outbox. */
#pragma once
#include "shm/bell.h"
#include "shm/layout.h"
#include "shm/words.h"

/* Coordinator: may order `number` be written (the one that had its slot is answered)? That is not enough:
 * the next answer in the slot takes the place of the one that is there, so the coordinator must also
 * have taken that. Write `number` only if order_fits(g, number, oldest) too, where `oldest` is its
 * oldest order whose answer it has not yet taken (none: number itself). */
static inline int order_fits(const struct geometry *g, uint64_t number, uint64_t oldest)
{
    return number - oldest < g->order_slots;
}
static inline int order_room(const struct geometry *g, struct pager_box *box, uint64_t number)
{
    uint64_t before = number - g->order_slots;

    return number <= g->order_slots ||
           atomic_load_explicit(&box->done[number & (g->order_slots - 1)], memory_order_acquire) / 2 ==
               before;
}
/* Coordinator: writes it and rings the pager. o->number = head + 1. Needs order_room. One thread at a
 * time. */
void order_publish(const struct geometry *g, struct orders *os, const struct order *o,
                   struct bell *pager_bell, const _Atomic uint32_t *pager_asleep);
/* Pager: order `number` if it is there (1), 0: not yet. */
int order_take(const struct geometry *g, struct orders *os, uint64_t number, struct order *out);
/* Pager: for bell_sleep's look: is order `number` there? enum look. */
static inline int order_look(const struct geometry *g, struct orders *os, uint64_t number)
{
    if (atomic_load_explicit(&os->rung, memory_order_acquire) >= number)
        return LOOK_RUNG;
    return atomic_load_explicit(&os->slot[number & (g->order_slots - 1)].word,
                                memory_order_acquire) == PUBLISHED(number)
               ? LOOK_FOUND
               : LOOK_NOTHING;
}
/* Pager: the answer. piece: the one that failed (why: CHECKSUM, IO). */
static inline void order_done(const struct geometry *g, struct pager_box *box, uint64_t number,
                              enum order_why why, uint32_t piece)
{
    uint64_t slot = number & (g->order_slots - 1);

    atomic_store_explicit(&pager_why(g, box)[slot], (uint32_t)why | piece << 8,
                          memory_order_relaxed);
    atomic_store_explicit(&box->done[slot], 2 * number + (why != ORDER_WHY_OK),
                          memory_order_release);
}
/* Coordinator, after the worker that took the orders is reaped, before another begins behind them: answers
 * all orders before `next` that it has left open, failed. */
static inline void orders_bury(const struct geometry *g, struct pager_box *box, uint64_t next)
{
    for (uint64_t n = next > g->order_slots ? next - g->order_slots : 1; n < next; n++)
        if (atomic_load_explicit(&box->done[n & (g->order_slots - 1)], memory_order_acquire) / 2 < n)
            order_done(g, box, n, ORDER_WHY_CANCELLED, 0);
}
/* Coordinator: 0 open, 1 done, -1 failed. */
static inline int order_answer(const struct geometry *g, struct pager_box *box, uint64_t number)
{
    uint64_t w = atomic_load_explicit(&box->done[number & (g->order_slots - 1)], memory_order_acquire);

    return w == 2 * number ? 1 : w == 2 * number + 1 ? -1 : 0;
}
/* Coordinator, after order_answer said -1 and before the slot is used again: enum order_why; *piece
 * (may be NULL) the failing piece's index, to be checked before it is used as one. */
static inline uint32_t order_why(const struct geometry *g, struct pager_box *box, uint64_t number,
                                 uint32_t *piece)
{
    uint32_t w = atomic_load_explicit(&pager_why(g, box)[number & (g->order_slots - 1)],
                                      memory_order_relaxed);

    if (piece)
        *piece = w >> 8;
    return w & 255;
}
