/* How an MXFP4 block opens with AVX2; the block is described in mxfp4.c. Values are shifted by 12
 * to 0..24. */
#pragma once
#include "kernels/dot/avx2.h"
#include "kernels/dot/tables.h"

enum { BLOCK_BYTES = 17, SHIFT = 12, WITH_MINS = 0, WITH_SIGN = 0 };

INLINE __m256i bytes(const uint8_t *b, __m256i *sign)
{
    const __m256i table = _mm256_add_epi8(table16(e2m1_values), _mm256_set1_epi8(12));

    (void)sign;
    return _mm256_shuffle_epi8(table, nibbles(b + 1));
}
INLINE __m128 factors(const uint8_t *const b[4])
{
    const float *half = (const float *)e8m0_half_bits;

    return _mm_setr_ps(half[b[0][0]], half[b[1][0]], half[b[2][0]], half[b[3][0]]);
}
INLINE __m128 min_factors(const uint8_t *const b[4])
{
    return factors(b);
}
