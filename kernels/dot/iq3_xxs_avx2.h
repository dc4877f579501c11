/* How an IQ3_XXS block opens with AVX2; the block is described in iq3_xxs.c. */
#pragma once
#include "kernels/dot/a256_avx2.h"
#include "kernels/dot/iq_avx2.h"

enum { BLOCK_BYTES = 98, SUB_BLOCK = 32, WITH_SHIFT = 0, WITH_MINS = 0, WITH_SIGN = 1 };

INLINE void head(const uint8_t *b, struct head *h)
{
    __m256i bits = load256(b + 66);

    h->scales = scales_top4(bits);
    h->negative = signs_4x7(bits);
}
/* values 32j.. without their signs */
INLINE __m256i magnitudes(const uint8_t *b, int j)
{
    const uint8_t *q = b + 2 + 8 * j;
    const uint32_t *grid = iq3xxs_grid;

    return grid_4x8(grid[q[0]], grid[q[1]], grid[q[2]], grid[q[3]], grid[q[4]], grid[q[5]],
                    grid[q[6]], grid[q[7]]);
}
INLINE __m256i bytes(const uint8_t *b, const struct head *h, int j, __m256i *sign)
{
    *sign = word_to_signs(h->negative, j);
    return magnitudes(b, j);
}
INLINE __m128 factors(const uint8_t *const b[4])
{
    return _mm_mul_ps(f16x4(b[0], b[1], b[2], b[3]), _mm_set1_ps(0.25f));
}
INLINE __m128 min_factors(const uint8_t *const b[4])
{
    return factors(b);
}
