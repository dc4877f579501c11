/* How a Q5_0 block opens with AVX2; the block is described in q5_0.c. Values are shifted by 16
 * to 0..31. */
#pragma once
#include "kernels/dot/avx2.h"

enum { BLOCK_BYTES = 22, SHIFT = 16, WITH_MINS = 0, WITH_SIGN = 0 };

INLINE __m256i bytes(const uint8_t *b, __m256i *sign)
{
    __m256i high = _mm256_and_si256(bits_to_bytes(load_u32(b + 2)), _mm256_set1_epi8(16));

    (void)sign;
    return _mm256_or_si256(nibbles(b + 6), high);
}
INLINE __m128 factors(const uint8_t *const b[4])
{
    return f16x4(b[0], b[1], b[2], b[3]);
}
INLINE __m128 min_factors(const uint8_t *const b[4])
{
    return factors(b);
}
