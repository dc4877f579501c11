/* Checked arithmetic for sizes that came from a file, a request or another process.
 * Each returns 0 and stores the result, or -1 on overflow. */
#pragma once
#include <stddef.h>
#include <stdint.h>

static inline int size_mul(size_t a, size_t b, size_t *out)
{
    return __builtin_mul_overflow(a, b, out) ? -1 : 0;
}
static inline int size_add(size_t a, size_t b, size_t *out)
{
    return __builtin_add_overflow(a, b, out) ? -1 : 0;
}
static inline int u64_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    return __builtin_mul_overflow(a, b, out) ? -1 : 0;
}
static inline int u64_add(uint64_t a, uint64_t b, uint64_t *out)
{
    return __builtin_add_overflow(a, b, out) ? -1 : 0;
}
/* to a multiple of a power of two; x near 2^64 is the caller's to exclude */
static inline uint64_t round_up(uint64_t x, uint64_t to)
{
    return (x + to - 1) & ~(to - 1);
}
