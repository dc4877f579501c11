/* How an IQ1_M block opens with AVX2; the block is described in iq1_m.c. Values are shifted by 9
 * to 0..18. */
#pragma once
#include "kernels/dot/a256_avx2.h"
#include "kernels/dot/iq_avx2.h"

/* the f16 d, from the top nibbles of four words */
INLINE short iq1_m_d(const uint8_t *b)
{
    uint64_t s = load_u64(b + 48);

    return (short)((s >> 12 & 15) | (s >> 24 & 0xF0) | (s >> 36 & 0xF00) | (s >> 48 & 0xF000));
}

enum { BLOCK_BYTES = 56, SUB_BLOCK = 16, WITH_SHIFT = 1, WITH_MINS = 0, WITH_SIGN = 0 };

INLINE void head(const uint8_t *b, struct head *h)
{
    const __m256i spread = _mm256_setr_epi8(0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 2, 3, /* */
                                            4, 5, 4, 5, 4, 5, 4, 5, 6, 7, 6, 7, 6, 7, 6, 7);
    const __m256i even_odd = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15,
                                              0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    const __m256i to_9 = _mm256_set1_epi64x(1ll << 48 | 8ll << 32 | 64ll << 16 | 512);
    const __m128i qh = load128(b + 32), two = _mm_set1_epi8(2);
    __m256i s = _mm256_shuffle_epi8(_mm256_set1_epi64x((long long)load_u64(b + 48)), spread);
    __m256i shifts;
    __m128i low, high;

    s = _mm256_srli_epi16(_mm256_mullo_epi16(s, to_9), 8); /* three bits to 1..3 */
    s = _mm256_or_si256(_mm256_and_si256(s, _mm256_set1_epi16(14)), _mm256_set1_epi16(1));
    h->scales = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(s, even_odd), 0xD8);
    h->shift = _mm256_mullo_epi16(s, _mm256_set1_epi16(-9));
    low = _mm_and_si128(_mm_srli_epi16(qh, 2), two);
    high = _mm_and_si128(_mm_srli_epi16(qh, 6), two);
    shifts = _mm256_setr_m128i(_mm_unpacklo_epi8(low, high), _mm_unpackhi_epi8(low, high));
    h->negative = _mm256_sub_epi8(_mm256_set1_epi8(2), shifts); /* here: a byte for eight values */
}
INLINE __m256i bytes(const uint8_t *b, const struct head *h, int j, __m256i *sign)
{
    const __m256i each_8 =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const uint8_t *q = b + 4 * j;
    unsigned high = load_u16(b + 32 + 2 * j);
    __m256i v = grid_8x4(iq1s_grid, q[0] | (high << 8 & 0x700), q[1] | (high << 4 & 0x700),
                         q[2] | (high & 0x700), q[3] | (high >> 4 & 0x700));
    __m256i shifts = _mm256_permutevar8x32_epi32(h->negative, _mm256_set1_epi32(j));

    (void)sign;
    v = _mm256_slli_epi16(_mm256_add_epi8(v, _mm256_set1_epi8(1)), 3); /* 0, 8, 16: stays inside */
    return _mm256_add_epi8(v, _mm256_shuffle_epi8(shifts, each_8));
}
INLINE __m128 factors(const uint8_t *const b[4])
{
    __m128i bits =
        _mm_setr_epi16(iq1_m_d(b[0]), iq1_m_d(b[1]), iq1_m_d(b[2]), iq1_m_d(b[3]), 0, 0, 0, 0);

    return _mm_mul_ps(_mm_cvtph_ps(bits), _mm_set1_ps(0.125f));
}
INLINE __m128 min_factors(const uint8_t *const b[4])
{
    return factors(b);
}
