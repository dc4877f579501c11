/* How an IQ3_S block opens with AVX2; the block is described in iq3_s.c. */
#pragma once
#include "kernels/dot/a256_avx2.h"
#include "kernels/dot/iq_avx2.h"

enum { BLOCK_BYTES = 110, SUB_BLOCK = 32, WITH_SHIFT = 0, WITH_MINS = 0, WITH_SIGN = 1 };

INLINE void head(const uint8_t *b, struct head *h)
{
    __m128i low = _mm_cvtsi32_si128((int)load_u32(b + 106)), nibble = _mm_set1_epi8(15);

    low = _mm_unpacklo_epi8(_mm_and_si128(low, nibble),
                            _mm_and_si128(_mm_srli_epi16(low, 4), nibble));
    h->scales = scales_32(_mm_or_si128(_mm_add_epi8(low, low), _mm_set1_epi8(1)));
    h->negative = load256(b + 74);
}
/* values 32j.. without their signs */
INLINE __m256i magnitudes(const uint8_t *b, int j)
{
    const uint8_t *q = b + 2 + 8 * j;
    const uint32_t *grid = iq3s_grid;
    unsigned high = b[66 + j];

    return grid_4x8(grid[q[0] | (high << 8 & 256)], grid[q[1] | (high << 7 & 256)],
                    grid[q[2] | (high << 6 & 256)], grid[q[3] | (high << 5 & 256)],
                    grid[q[4] | (high << 4 & 256)], grid[q[5] | (high << 3 & 256)],
                    grid[q[6] | (high << 2 & 256)], grid[q[7] | (high << 1 & 256)]);
}
INLINE __m256i bytes(const uint8_t *b, const struct head *h, int j, __m256i *sign)
{
    *sign = word_to_signs(h->negative, j);
    return magnitudes(b, j);
}
INLINE __m128 factors(const uint8_t *const b[4])
{
    return f16x4(b[0], b[1], b[2], b[3]);
}
INLINE __m128 min_factors(const uint8_t *const b[4])
{
    return factors(b);
}
