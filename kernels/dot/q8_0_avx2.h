/* How a Q8_0 block opens with AVX2; the block is described in q8_0.c. -128 has the magnitude 128
 * as an unsigned byte, and the vector's bytes are never -128, so that both fit. */
#pragma once
#include "kernels/dot/avx2.h"

enum { BLOCK_BYTES = 34, SHIFT = 0, WITH_MINS = 0, WITH_SIGN = 1 };

INLINE __m256i bytes(const uint8_t *b, __m256i *sign)
{
    *sign = load256(b + 2);
    return _mm256_abs_epi8(*sign);
}
INLINE __m128 factors(const uint8_t *const b[4])
{
    return f16x4(b[0], b[1], b[2], b[3]);
}
INLINE __m128 min_factors(const uint8_t *const b[4])
{
    return factors(b);
}
