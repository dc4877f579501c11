/* How an IQ4_XS block opens with AVX2; the block is described in iq4_xs.c. */
#pragma once
#include "kernels/dot/a256_avx2.h"
#include "kernels/dot/tables.h"

enum { BLOCK_BYTES = 136, SUB_BLOCK = 32, WITH_SHIFT = 0, WITH_MINS = 0, WITH_SIGN = 1 };

INLINE void head(const uint8_t *b, struct head *h)
{
    __m128i low = _mm_cvtsi32_si128((int)load_u32(b + 4)), nibble = _mm_set1_epi8(15);
    uint64_t high = load_u16(b + 2);

    high = (high | high << 24) & 0x000000FF000000FF; /* two bits to each byte */
    high = (high | high << 12) & 0x000F000F000F000F;
    high = (high | high << 6) & 0x0303030303030303;
    low = _mm_unpacklo_epi8(_mm_and_si128(low, nibble),
                            _mm_and_si128(_mm_srli_epi16(low, 4), nibble));
    low = _mm_or_si128(low, _mm_cvtsi64_si128((long long)(high << 4)));
    h->scales = scales_32(_mm_sub_epi8(low, _mm_set1_epi8(32)));
}
INLINE __m256i bytes(const uint8_t *b, const struct head *h, int j, __m256i *sign)
{
    (void)h;
    *sign = _mm256_shuffle_epi8(table16(iq4_values), nibbles(b + 8 + 16 * j));
    return _mm256_abs_epi8(*sign);
}
INLINE __m128 factors(const uint8_t *const b[4])
{
    return f16x4(b[0], b[1], b[2], b[3]);
}
INLINE __m128 min_factors(const uint8_t *const b[4])
{
    return factors(b);
}
