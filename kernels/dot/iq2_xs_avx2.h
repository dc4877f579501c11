/* How a IQ2_XS block opens with AVX2; the block is described in iq2_xs.c. */
#pragma once
#include "kernels/dot/a256_avx2.h"
#include "kernels/dot/iq_avx2.h"

enum { BLOCK_BYTES = 74, SUB_BLOCK = 16, WITH_SHIFT = 0, WITH_MINS = 0, WITH_SIGN = 1 };

INLINE void head(const uint8_t *b, struct head *h)
{
    h->scales = scales_16(scales_nibbles(b + 66));
}
INLINE __m256i bytes(const uint8_t *b, int j, __m256i *sign)
{
    uint64_t q = load_u64(b + 2 + 8 * j);

    *sign = _mm256_setr_epi64x((long long)sign_bytes[q >> 9 & 127], (long long)sign_bytes[q >> 25 & 127],
                               (long long)sign_bytes[q >> 41 & 127], (long long)sign_bytes[q >> 57]);
    return grid_8x4(iq2xs_grid, q & 511, q >> 16 & 511, q >> 32 & 511, q >> 48 & 511);
}
INLINE __m128 factors(const uint8_t *const b[4])
{
    return _mm_mul_ps(f16x4(b[0], b[1], b[2], b[3]), _mm_set1_ps(0.125f));
}
INLINE __m128 min_factors(const uint8_t *const b[4])
{
    return factors(b);
}
