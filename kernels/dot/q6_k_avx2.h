/* How a Q6_K block opens with AVX2; the block is described in q6_k.c. Values are shifted by 32
 * to 0..63. */
#pragma once
#include "kernels/dot/a256_avx2.h"

enum { BLOCK_BYTES = 210, SUB_BLOCK = 16, WITH_SHIFT = 1, WITH_MINS = 0, WITH_SIGN = 0 };

INLINE void head(const uint8_t *b, struct head *h)
{
    __m128i s = load128(b + 192);

    h->scales = scales_16(s);
    h->shift = _mm256_mullo_epi16(_mm256_cvtepi8_epi16(s), _mm256_set1_epi16(-32));
}
INLINE __m256i bytes(const uint8_t *b, const struct head *h, int j, __m256i *sign)
{
    int half = j / 4, part = j % 4;
    __m256i low = load256(b + 64 * half + 32 * (part & 1)), high = load256(b + 128 + 32 * half);

    (void)h;
    (void)sign;
    low = _mm256_and_si256(part < 2 ? low : _mm256_srli_epi16(low, 4), _mm256_set1_epi8(15));
    high = part < 2 ? _mm256_slli_epi16(high, 4 - 2 * part) : _mm256_srli_epi16(high, 2 * part - 4);
    return _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi8(0x30)));
}
INLINE __m128 factors(const uint8_t *const b[4])
{
    return f16x4(b[0] + 208, b[1] + 208, b[2] + 208, b[3] + 208);
}
INLINE __m128 min_factors(const uint8_t *const b[4])
{
    return factors(b);
}
