/* For types whose bytes are mostly looked up: values 64j.. of a block as two AVX2 halves. Included
 * after <type>_avx2.h. */
#pragma once
#include "kernels/dot/avx512.h"

INLINE __m512i bytes512(const uint8_t *b, const struct head *h, int j, __mmask64 *negative)
{
    __m256i sign[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    __m256i low = bytes(b, h, 2 * j, &sign[0]), high = bytes(b, h, 2 * j + 1, &sign[1]);

    if (WITH_SIGN)
        *negative = (uint32_t)_mm256_movepi8_mask(sign[0]) |
                    (uint64_t)(uint32_t)_mm256_movepi8_mask(sign[1]) << 32;
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
