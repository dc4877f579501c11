/* How an IQ1_S block opens with AVX2; the block is described in iq1_s.c. With grid values 0..2 in
 * place of -1..1, S is the sum of 8 * scale * u * q, less scale * (8 - delta) times the sum of
 * q. */
#pragma once
#include "kernels/dot/a256_avx2.h"
#include "kernels/dot/iq_avx2.h"

enum { BLOCK_BYTES = 50, SUB_BLOCK = 32, WITH_SHIFT = 1, WITH_MINS = 0, WITH_SIGN = 0 };

INLINE void head(const uint8_t *b, struct head *h)
{
    __m128i q = load128(b + 34);
    __m128i s = _mm_and_si128(_mm_srli_epi16(q, 11), _mm_set1_epi16(14)); /* 2x */
    __m128i down = _mm_and_si128(_mm_srai_epi16(q, 15), _mm_set1_epi16(-2)), shift;

    s = _mm_or_si128(s, _mm_set1_epi16(1));
    shift = _mm_mullo_epi16(s, _mm_add_epi16(down, _mm_set1_epi16(-7)));
    h->scales = _mm256_broadcastsi128_si256(_mm_slli_epi16(s, 3));
    h->shift =
        _mm256_setr_m128i(_mm_unpacklo_epi16(shift, shift), _mm_unpackhi_epi16(shift, shift));
}
INLINE __m256i bytes(const uint8_t *b, const struct head *h, int j, __m256i *sign)
{
    const uint8_t *q = b + 2 + 4 * j;
    unsigned high = load_u16(b + 34 + 2 * j);
    __m256i v = grid_8x4(iq1s_grid, q[0] | (high << 8 & 0x700), q[1] | (high << 5 & 0x700),
                         q[2] | (high << 2 & 0x700), q[3] | (high >> 1 & 0x700));

    (void)h;
    (void)sign;
    return _mm256_add_epi8(v, _mm256_set1_epi8(1));
}
INLINE __m128 factors(const uint8_t *const b[4])
{
    return _mm_mul_ps(f16x4(b[0], b[1], b[2], b[3]), _mm_set1_ps(0.125f));
}
INLINE __m128 min_factors(const uint8_t *const b[4])
{
    return factors(b);
}
