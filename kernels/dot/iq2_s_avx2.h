/* How an IQ2_S block opens with AVX2; the block is described in iq2_s.c. */
#pragma once
#include "kernels/dot/a256_avx2.h"
#include "kernels/dot/iq_avx2.h"

enum { BLOCK_BYTES = 82, SUB_BLOCK = 16, WITH_SHIFT = 0, WITH_MINS = 0, WITH_SIGN = 1 };

INLINE void head(const uint8_t *b, struct head *h)
{
    h->scales = scales_16(scales_nibbles(b + 74));
    h->negative = load256(b + 34);
}
/* values 32j.. without their signs */
INLINE __m256i magnitudes(const uint8_t *b, int j)
{
    const uint8_t *q = b + 2 + 4 * j;
    unsigned high = b[66 + j];

    return grid_8x4(iq2s_grid, q[0] | (high << 8 & 0x300), q[1] | (high << 6 & 0x300),
                    q[2] | (high << 4 & 0x300), q[3] | (high << 2 & 0x300));
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
