/* How a Q4_1 block opens with AVX2; the block is described in q4_1.c. */
#pragma once
#include "kernels/dot/avx2.h"

enum { BLOCK_BYTES = 20, SHIFT = 0, WITH_MINS = 1, WITH_SIGN = 0 };

INLINE __m256i bytes(const uint8_t *b, __m256i *sign)
{
    (void)sign;
    return nibbles(b + 4);
}
INLINE __m128 factors(const uint8_t *const b[4])
{
    return f16x4(b[0], b[1], b[2], b[3]);
}
INLINE __m128 min_factors(const uint8_t *const b[4])
{
    return f16x4(b[0] + 2, b[1] + 2, b[2] + 2, b[3] + 2);
}
