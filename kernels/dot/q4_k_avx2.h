/* How a Q4_K block opens with AVX2; the block is described in q4_k.c. */
#pragma once
#include "kernels/dot/a256_avx2.h"
#include "kernels/dot/k_scales_avx2.h"

enum { BLOCK_BYTES = 144, SUB_BLOCK = 32, WITH_SHIFT = 0, WITH_MINS = 1, WITH_SIGN = 0 };

INLINE void head(const uint8_t *b, struct head *h)
{
    k_head(b + 4, h);
}
INLINE __m256i bytes(const uint8_t *b, const struct head *h, int j, __m256i *sign)
{
    __m256i v = load256(b + 16 + 32 * (j / 2));

    (void)h;
    (void)sign;
    return _mm256_and_si256(j % 2 ? _mm256_srli_epi16(v, 4) : v, _mm256_set1_epi8(15));
}
INLINE __m128 factors(const uint8_t *const b[4])
{
    return f16x4(b[0], b[1], b[2], b[3]);
}
INLINE __m128 min_factors(const uint8_t *const b[4])
{
    return f16x4(b[0] + 2, b[1] + 2, b[2] + 2, b[3] + 2);
}
