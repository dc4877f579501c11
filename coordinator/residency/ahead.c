/* A list under a sequence lock: a reader that meets the writer comes again when it is rung. */
#include "coordinator/residency/ahead.h"

#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wtsan" /* nothing here is not atomic: no fence makes a race */
#endif

void ahead_tell(struct ahead *a, uint32_t layer, const uint32_t *expert, uint32_t n)
{
    uint64_t turn = atomic_load_explicit(&a->turn, memory_order_relaxed);

    if (n > AHEAD_MOST)
        n = AHEAD_MOST;
    atomic_store_explicit(&a->turn, turn + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&a->layer, layer, memory_order_relaxed);
    atomic_store_explicit(&a->n, n, memory_order_relaxed);
    for (uint32_t i = 0; i < n; i++)
        atomic_store_explicit(&a->word[i], expert[i], memory_order_relaxed);
    atomic_store_explicit(&a->turn, turn + 2, memory_order_release);
}

int ahead_take(const struct ahead *a, uint64_t *seen, uint32_t *layer, uint32_t *expert, uint32_t *n)
{
    uint64_t turn = atomic_load_explicit(&a->turn, memory_order_acquire);

    if (turn == *seen || turn & 1)
        return 0;
    *layer = atomic_load_explicit(&a->layer, memory_order_relaxed);
    *n = atomic_load_explicit(&a->n, memory_order_relaxed);
    for (uint32_t i = 0; i < *n; i++)
        expert[i] = atomic_load_explicit(&a->word[i], memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&a->turn, memory_order_relaxed) != turn)
        return 0;
    *seen = turn;
    return 1;
}
