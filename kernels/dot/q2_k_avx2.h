/* How a Q2_K block opens with AVX2; the block is described in q2_k.c. */
#pragma once
#include "kernels/dot/a256_avx2.h"

enum { BLOCK_BYTES = 84, SUB_BLOCK = 16, WITH_SHIFT = 0, WITH_MINS = 1, WITH_SIGN = 0 };

INLINE void head(const uint8_t *b, struct head *h)
{
    __m128i s = load128(b), low = _mm_set1_epi8(15);

    h->scales = scales_16(_mm_and_si128(s, low));
    h->mins = _mm256_cvtepi8_epi16(_mm_and_si128(_mm_srli_epi16(s, 4), low));
}
INLINE __m256i bytes(const uint8_t *b, const struct head *h, int j, __m256i *sign)
{
    __m256i v = load256(b + 16 + 32 * (j / 4));

    (void)h;
    (void)sign;
    return _mm256_and_si256(_mm256_srli_epi16(v, 2 * (j % 4)), _mm256_set1_epi8(3));
}
INLINE __m128 factors(const uint8_t *const b[4])
{
    return f16x4(b[0] + 80, b[1] + 80, b[2] + 80, b[3] + 80);
}
INLINE __m128 min_factors(const uint8_t *const b[4])
{
    return f16x4(b[0] + 82, b[1] + 82, b[2] + 82, b[3] + 82);
}
