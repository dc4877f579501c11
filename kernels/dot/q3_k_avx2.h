/* How a Q3_K block opens with AVX2; the block is described in q3_k.c. Values are shifted by 4 to
 * 0..7. */
#pragma once
#include "kernels/dot/a256_avx2.h"

enum { BLOCK_BYTES = 110, SUB_BLOCK = 16, WITH_SHIFT = 1, WITH_MINS = 0, WITH_SIGN = 0 };

INLINE void head(const uint8_t *b, struct head *h)
{
    uint64_t low = load_u64(b + 96), nibble = 0x0F0F0F0F0F0F0F0F;
    uint32_t high = load_u32(b + 104), two = 0x30303030;
    __m128i s = _mm_set_epi64x((long long)(low >> 4 & nibble), (long long)(low & nibble));

    s = _mm_or_si128(s, _mm_setr_epi32((int)(high << 4 & two), (int)(high << 2 & two),
                                       (int)(high & two), (int)(high >> 2 & two)));
    s = _mm_sub_epi8(s, _mm_set1_epi8(32));
    h->scales = scales_16(s);
    h->shift = _mm256_mullo_epi16(_mm256_cvtepi8_epi16(s), _mm256_set1_epi16(-4));
}
INLINE __m256i bytes(const uint8_t *b, const struct head *h, int j, __m256i *sign)
{
    __m256i v = _mm256_srli_epi16(load256(b + 32 + 32 * (j / 4)), 2 * (j % 4)), high = load256(b);

    (void)h;
    (void)sign;
    high = j < 2 ? _mm256_slli_epi16(high, 2 - j) : _mm256_srli_epi16(high, j - 2); /* bit j to 2 */
    return _mm256_or_si256(_mm256_and_si256(v, _mm256_set1_epi8(3)),
                           _mm256_and_si256(high, _mm256_set1_epi8(4)));
}
INLINE __m128 factors(const uint8_t *const b[4])
{
    return f16x4(b[0] + 108, b[1] + 108, b[2] + 108, b[3] + 108);
}
INLINE __m128 min_factors(const uint8_t *const b[4])
{
    return factors(b);
}
