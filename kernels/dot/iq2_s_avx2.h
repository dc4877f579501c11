/* How an IQ2_S block opens with AVX2; the block is described in iq2_s.c. */
#pragma once
#include "kernels/dot/a256_avx2.h"
#include "kernels/dot/iq_avx2.h"

enum { BLOCK_BYTES = 82, SUB_BLOCK = 16, WITH_SHIFT = 0, WITH_MINS = 0, WITH_SIGN = 1 };

INLINE void head(const uint8_t *b, struct head *h)
{
    const __m256i to_8 = _mm256_set1_epi64x(4ll << 48 | 16ll << 32 | 64ll << 16 | 256);
    const __m256i bytes_4 = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202,
                                               0x0303030303030303); /* each byte for four words */

    h->scales = scales_16(scales_nibbles(b + 74));
    store256(h->negative, load256(b + 34));
    for (int i = 0; i < 2; i++) { /* two bits of a byte to 8 and 9 of each of four words */
        __m256i high = _mm256_set1_epi32((int)load_u32(b + 66 + 4 * i));

        high = _mm256_and_si256(_mm256_shuffle_epi8(high, bytes_4), _mm256_set1_epi16(255));
        high = _mm256_and_si256(_mm256_mullo_epi16(high, to_8), _mm256_set1_epi16(0x300));
        store256(h->index + 16 * i,
                 _mm256_or_si256(high, _mm256_cvtepu8_epi16(load128(b + 2 + 16 * i))));
    }
    keep_in_memory(h);
}
INLINE __m256i magnitudes(const struct head *h, int j)
{
    return grid_8x4(iq2s_grid, h->index + 4 * j);
}
INLINE __m256i bytes(const uint8_t *b, const struct head *h, int j, __m256i *sign)
{
    (void)b;
    *sign = bits_to_signs(h->negative[j]);
    return magnitudes(h, j);
}
INLINE __m128 factors(const uint8_t *const b[4])
{
    return _mm_mul_ps(f16x4(b[0], b[1], b[2], b[3]), _mm_set1_ps(0.125f));
}
INLINE __m128 min_factors(const uint8_t *const b[4])
{
    return factors(b);
}
