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

/* sixteen nibbles: three bits above each index, and a byte 0 or 2 from the shift's sign */
INLINE void widen_nibbles(const uint8_t *b, __m128i n, int half, struct head *h)
{
    __m256i up = _mm256_slli_epi16(
        _mm256_and_si256(_mm256_cvtepu8_epi16(n), _mm256_set1_epi16(7)), 8);

    store256(h->index + 16 * half, _mm256_or_si256(up, _mm256_cvtepu8_epi16(load128(b + 16 * half))));
    n = _mm_sub_epi8(_mm_set1_epi8(2),
                     _mm_and_si128(_mm_srli_epi16(n, 2), _mm_set1_epi8(2)));
    _mm_storeu_si128((__m128i *)(h->negative + 4 * half), n);
}

INLINE void head(const uint8_t *b, struct head *h)
{
    const __m256i spread = _mm256_setr_epi8(0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 2, 3, /* */
                                            4, 5, 4, 5, 4, 5, 4, 5, 6, 7, 6, 7, 6, 7, 6, 7);
    const __m256i even_odd = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15,
                                              0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    const __m256i to_9 = _mm256_set1_epi64x(1ll << 48 | 8ll << 32 | 64ll << 16 | 512);
    const __m128i qh = load128(b + 32), nibble = _mm_set1_epi8(15);
    __m256i s = _mm256_shuffle_epi8(_mm256_set1_epi64x((long long)load_u64(b + 48)), spread);
    __m128i low, high;

    s = _mm256_srli_epi16(_mm256_mullo_epi16(s, to_9), 8); /* three bits to 1..3 */
    s = _mm256_or_si256(_mm256_and_si256(s, _mm256_set1_epi16(14)), _mm256_set1_epi16(1));
    h->scales = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(s, even_odd), 0xD8);
    h->shift = _mm256_mullo_epi16(s, _mm256_set1_epi16(-9));
    low = _mm_and_si128(qh, nibble);
    high = _mm_and_si128(_mm_srli_epi16(qh, 4), nibble);
    widen_nibbles(b, _mm_unpacklo_epi8(low, high), 0, h);
    widen_nibbles(b, _mm_unpackhi_epi8(low, high), 1, h);
    keep_in_memory(h);
}
INLINE __m256i bytes(const uint8_t *b, const struct head *h, int j, __m256i *sign)
{
    const __m256i each_8 = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202,
                                              0x0303030303030303);
    __m256i v = _mm256_add_epi8(grid_8x4(iq1s_grid, h->index + 4 * j), _mm256_set1_epi8(1));

    (void)b;
    (void)sign;
    v = _mm256_slli_epi16(v, 3); /* 0, 8, 16: stays inside its byte */
    return _mm256_add_epi8(v, _mm256_shuffle_epi8(_mm256_set1_epi32((int)h->negative[j]), each_8));
}
INLINE __m128 factors(const uint8_t *const b[4])
{
    __m128i bits = _mm_setr_epi16(iq1_m_d(b[0]), iq1_m_d(b[1]), iq1_m_d(b[2]), iq1_m_d(b[3]), 0, 0, 0, 0);

    return _mm_mul_ps(_mm_cvtph_ps(bits), _mm_set1_ps(0.125f));
}
INLINE __m128 min_factors(const uint8_t *const b[4])
{
    return factors(b);
}
