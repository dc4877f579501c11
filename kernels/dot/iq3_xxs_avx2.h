/* How an IQ3_XXS block opens with AVX2; the block is described in iq3_xxs.c. */
#pragma once
#include "kernels/dot/a256_avx2.h"
#include "kernels/dot/iq_avx2.h"

enum { BLOCK_BYTES = 98, SUB_BLOCK = 32, WITH_SHIFT = 0, WITH_MINS = 0, WITH_SIGN = 1 };

INLINE void head(const uint8_t *b, struct head *h)
{
    __m256i bits = load256(b + 66);

    h->scales = scales_top4(bits);
    store256(h->negative, signs_4x7(bits));
    widen_bytes(h->index, b + 2, 64);
    keep_in_memory(h);
}
INLINE __m256i magnitudes(const struct head *h, int j)
{
    return grid_4x8(iq3xxs_grid, h->index + 8 * j);
}
INLINE __m256i bytes(const uint8_t *b, const struct head *h, int j, __m256i *sign)
{
    (void)b;
    *sign = bits_to_signs(h->negative[j]);
    return magnitudes(h, j);
}
INLINE __m128 factors(const uint8_t *const b[4])
{
    return _mm_mul_ps(f16x4(b[0], b[1], b[2], b[3]), _mm_set1_ps(0.25f));
}
INLINE __m128 min_factors(const uint8_t *const b[4])
{
    return factors(b);
}
