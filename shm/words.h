/* Copies between private memory and shared memory as relaxed atomic words, so that a copy that
 * races with a writer is torn (and found out by the slot's word) but never a data race. */
#pragma once
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* gcc's thread sanitizer does not model fences and says so, an error here. Nothing but relaxed atomic
 * words depends on one, so it has nothing to miss. */
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wtsan"
#endif

/* n bytes, a multiple of 4; both sides 4-byte aligned */
static inline void words_load(void *dst, const void *shared, size_t n)
{
    const _Atomic uint32_t *s = shared;
    uint32_t *d = dst;

    for (size_t i = 0; i < n / 4; i++)
        d[i] = atomic_load_explicit(&s[i], memory_order_relaxed);
}
static inline void words_store(void *shared, const void *src, size_t n)
{
    _Atomic uint32_t *d = shared;
    const uint32_t *s = src;

    for (size_t i = 0; i < n / 4; i++)
        atomic_store_explicit(&d[i], s[i], memory_order_relaxed);
}
