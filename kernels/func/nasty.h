/* Inputs for tests of kernels: reproducible random floats, some of them the values that break
 * wrong code. Used by *_test.c only. */
#pragma once
#include "kernels/num.h"

#include <stddef.h>

struct nasty {
    uint64_t state;
};

static inline uint32_t nasty_u32(struct nasty *r)
{
    uint64_t z = r->state += 0x9E3779B97F4A7C15u; /* splitmix64 */

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (uint32_t)((z ^ z >> 31) >> 32);
}

/* -8 ... 8 */
static inline float nasty_plain(struct nasty *r)
{
    return (float)(int32_t)nasty_u32(r) * 0x1p-28f;
}

/* kind 0: plain; 1: some zeros, equal values and subnormals; 2: any bits; 3: as 1 with a few NaN,
 * infinities, extremes */
static inline void nasty_fill(struct nasty *r, int kind, float *x, size_t n)
{
    static const float mild[] = {0.0f, -0.0f, 1.0f, -1.0f, 0x1p-149f, -0x1p-130f, 0x1p-126f, 0.5f};
    static const uint32_t hard[] = {0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC12345,
                                    0x7F7FFFFF, 0xFF7FFFFF, 0x7F812345, 0x42B20001};

    for (size_t i = 0; i < n; i++) {
        uint32_t u = nasty_u32(r);

        x[i] = nasty_plain(r);
        if (kind == 2)
            x[i] = f32_from_bits(u);
        else if (kind == 3 && u % 64 == 0)
            x[i] = f32_from_bits(hard[(u >> 8) % 8]);
        else if (kind && u % 4 == 0)
            x[i] = mild[(u >> 8) % 8];
    }
}
