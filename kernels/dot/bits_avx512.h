/* Moving bits of Q4_K, Q5_K and Q6_K with AVX-512. */
#pragma once
#include "kernels/dot/avx512.h"

/* 32 bytes twice: the lower copy shifted right by low, the upper one by high */
INLINE __m512i right(__m256i v, int low, int high)
{
    const __m512i n =
        _mm512_inserti64x4(_mm512_set1_epi16((short)low), _mm256_set1_epi16((short)high), 1);

    return _mm512_srlv_epi16(_mm512_broadcast_i64x4(v), n);
}
/* the same to the left */
INLINE __m512i left(__m256i v, int low, int high)
{
    const __m512i n =
        _mm512_inserti64x4(_mm512_set1_epi16((short)low), _mm256_set1_epi16((short)high), 1);

    return _mm512_sllv_epi16(_mm512_broadcast_i64x4(v), n);
}
/* low | (high & mask) */
INLINE __m512i or_masked(__m512i low, __m512i high, int mask)
{
    return _mm512_ternarylogic_epi64(low, high, _mm512_set1_epi8((char)mask), 0xF8);
}
