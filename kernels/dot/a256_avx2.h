/* What <type>_avx2.h hands to the AVX forms for one block of a 256-value type. */
#pragma once
#include "kernels/dot/avx2.h"

struct head {
    __m256i scales; /* int16; sub-blocks of 16: the even ones below, the odd ones above */
    __m256i
        shift;    /* int16, one per 16 values in their order: its product with sum16 belongs to S */
    __m256i mins; /* int16, one per 16 values in their order */
    __m256i negative; /* types with sign bits: one for each value, in order */
};

/* sixteen signed bytes, one per 16 values, as head.scales */
INLINE __m256i scales_16(__m128i s)
{
    const __m128i even_odd = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);

    return _mm256_cvtepi8_epi16(_mm_shuffle_epi8(s, even_odd));
}
/* eight signed bytes (the low half), one per 32 values, as head.scales */
INLINE __m256i scales_32(__m128i s)
{
    return _mm256_broadcastsi128_si256(_mm_cvtepi8_epi16(s));
}
/* eight signed bytes, one per 32 values, in the order of sum16 */
INLINE __m256i twice_each(__m128i s)
{
    const __m128i twice = _mm_setr_epi8(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);

    return _mm256_cvtepi8_epi16(_mm_shuffle_epi8(s, twice));
}
