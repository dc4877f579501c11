/* How a Q4_0 block opens with AVX2; the block is described in q4_0.c. Values are shifted by 8 to
 * 0..15. */
#pragma once
#include "kernels/dot/avx2.h"

enum { BLOCK_BYTES = 18, SHIFT = 8, WITH_MINS = 0, WITH_SIGN = 0 };

INLINE __m256i bytes(const uint8_t *b, __m256i *sign)
{
    (void)sign;
    return nibbles(b + 2);
}
INLINE __m128 factors(const uint8_t *const b[4])
{
    return f16x4(b[0], b[1], b[2], b[3]);
}
INLINE __m128 min_factors(const uint8_t *const b[4])
{
    return factors(b);
}
