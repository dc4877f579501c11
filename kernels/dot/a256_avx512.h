/* What a type's AVX-512 file hands to a256_avx512_form.h for one block. */
#pragma once
#include "kernels/dot/avx512.h"

struct head {
    __m256i scales; /* int16, one per 16 values in their order */
    __m256i shift;  /* int16, one per 16 values: its product with sum16 is added to S */
    __m128i mins;   /* int16, one per 32 values */
};

/* eight signed bytes (the low half), one per 32 values, as head.scales */
INLINE __m256i scales_32(__m128i s)
{
    const __m128i twice = _mm_setr_epi8(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);

    return _mm256_cvtepi8_epi16(_mm_shuffle_epi8(s, twice));
}
