/* How an IQ2_XS block opens with AVX2; the block is described in iq2_xs.c. */
#pragma once
#include "kernels/dot/a256_avx2.h"
#include "kernels/dot/iq_avx2.h"

enum { BLOCK_BYTES = 74, SUB_BLOCK = 16, WITH_SHIFT = 0, WITH_MINS = 0, WITH_SIGN = 1 };

INLINE void head(const uint8_t *b, struct head *h)
{
    __m256i first = _mm256_srli_epi16(load256(b + 2), 9);
    __m256i second = _mm256_srli_epi16(load256(b + 34), 9);
    __m256i sign = _mm256_packus_epi16(first, second);

    h->scales = scales_16(scales_nibbles(b + 66));
    h->negative = with_parity(_mm256_permute4x64_epi64(sign, 0xD8));
}
/* values 32j.. without their signs */
INLINE __m256i magnitudes(const uint8_t *b, int j)
{
    const uint8_t *q = b + 2 + 8 * j;

    return grid_8x4(iq2xs_grid, load_u16(q) & 511, load_u16(q + 2) & 511, load_u16(q + 4) & 511,
                    load_u16(q + 6) & 511);
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
