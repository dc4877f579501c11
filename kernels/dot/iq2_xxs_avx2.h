/* How an IQ2_XXS block opens with AVX2; the block is described in iq2_xxs.c. */
#pragma once
#include "kernels/dot/a256_avx2.h"
#include "kernels/dot/iq_avx2.h"

enum { BLOCK_BYTES = 66, SUB_BLOCK = 32, WITH_SHIFT = 0, WITH_MINS = 0, WITH_SIGN = 1 };

INLINE void head(const uint8_t *b, struct head *h)
{
    __m256i a = load256(b + 2), c = load256(b + 34); /* indices and bits take turns */
    __m256 odd = _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(c), 0xDD);
    __m256i bits = _mm256_permute4x64_epi64(_mm256_castps_si256(odd), 0xD8);

    h->scales = scales_top4(bits);
    h->negative = signs_4x7(bits);
}
/* values 32j.. without their signs */
INLINE __m256i magnitudes(const uint8_t *b, int j)
{
    const uint8_t *q = b + 2 + 8 * j;

    return grid_8x4(iq2xxs_grid, q[0], q[1], q[2], q[3]);
}
INLINE __m256i bytes(const uint8_t *b, const struct head *h, int j, __m256i *sign)
{
    *sign = word_to_signs(h->negative, j);
    return magnitudes(b, j);
}
INLINE __m128 factors(const uint8_t *const b[4])
{
    return _mm_mul_ps(f16x4(b[0], b[1], b[2], b[3]), _mm_set1_ps(0.125f));
}
INLINE __m128 min_factors(const uint8_t *const b[4])
{
    return factors(b);
}
