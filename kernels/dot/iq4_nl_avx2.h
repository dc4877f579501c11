/* How an IQ4_NL block opens with AVX2; the block is described in iq4_nl.c. */
#pragma once
#include "kernels/dot/avx2.h"
#include "kernels/dot/tables.h"

enum { BLOCK_BYTES = 18, SHIFT = 0, WITH_MINS = 0, WITH_SIGN = 1 };

INLINE __m256i bytes(const uint8_t *b, __m256i *sign)
{
    *sign = _mm256_shuffle_epi8(table16(iq4_values), nibbles(b + 2));
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
