/* How an IQ3_S block opens with AVX2; the block is described in iq3_s.c. */
#pragma once
#include "kernels/dot/a256_avx2.h"
#include "kernels/dot/iq_avx2.h"

enum { BLOCK_BYTES = 110, SUB_BLOCK = 32, WITH_SHIFT = 0, WITH_MINS = 0, WITH_SIGN = 1 };

INLINE void head(const uint8_t *b, struct head *h)
{
    const __m256i bit = _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096,
                                          8192, 16384, -32768);
    __m128i low = _mm_cvtsi32_si128((int)load_u32(b + 106)), nibble = _mm_set1_epi8(15);

    low = _mm_unpacklo_epi8(_mm_and_si128(low, nibble), _mm_and_si128(_mm_srli_epi16(low, 4), nibble));
    h->scales = scales_32(_mm_or_si128(_mm_add_epi8(low, low), _mm_set1_epi8(1)));
    store256(h->negative, load256(b + 74));
    for (int i = 0; i < 4; i++) { /* bit t of qh is bit 8 of index t */
        __m256i high = _mm256_set1_epi16((short)load_u16(b + 66 + 2 * i));

        high = _mm256_cmpeq_epi16(_mm256_and_si256(high, bit), bit);
        high = _mm256_and_si256(high, _mm256_set1_epi16(256));
        store256(h->index + 16 * i,
                 _mm256_or_si256(high, _mm256_cvtepu8_epi16(load128(b + 2 + 16 * i))));
    }
    keep_in_memory(h);
}
INLINE __m256i magnitudes(const struct head *h, int j)
{
    return grid_4x8(iq3s_grid, h->index + 8 * j);
}
INLINE __m256i bytes(const uint8_t *b, const struct head *h, int j, __m256i *sign)
{
    (void)b;
    *sign = bits_to_signs(h->negative[j]);
    return magnitudes(h, j);
}
INLINE __m128 factors(const uint8_t *const b[4])
{
    return f16x4(b[0], b[1], b[2], b[3]);
}
INLINE __m128 min_factors(const uint8_t *const b[4])
{
    return factors(b);
}
