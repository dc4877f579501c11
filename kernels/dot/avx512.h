/* Small pieces that the AVX-512 forms share. A 512-bit register has four parts of 128 bits. */
#pragma once
#include "kernels/dot/avx2.h"

/* element i of every part of the result is the sum of that part of argument i */
INLINE __m512i combine4(__m512i a, __m512i b, __m512i c, __m512i d)
{
    __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));

    return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}
/* part i of the result is the sum of the four parts of argument i */
INLINE __m512i sum_parts(__m512i a, __m512i b, __m512i c, __m512i d)
{
    __m512i ab = _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xDD));
    __m512i cd = _mm512_add_epi32(_mm512_shuffle_i32x4(c, d, 0x88), _mm512_shuffle_i32x4(c, d, 0xDD));

    return _mm512_add_epi32(_mm512_shuffle_i32x4(ab, cd, 0x88), _mm512_shuffle_i32x4(ab, cd, 0xDD));
}
/* the sum of the four parts */
INLINE __m128i fold_parts(__m512i v)
{
    __m256i h = _mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));

    return _mm_add_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
}
/* four numbers: element i to all of part i */
INLINE __m512 to_parts(__m128 v)
{
    const __m512i idx = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);

    return _mm512_permutexvar_ps(idx, _mm512_castps128_ps512(v));
}
INLINE __m512i load512(const void *p)
{
    return _mm512_loadu_si512(p);
}
/* four loads of 128 bits */
INLINE __m512i load_parts(const void *a, const void *b, const void *c, const void *d)
{
    __m256i ab = _mm256_inserti128_si256(_mm256_castsi128_si256(load128(a)), load128(b), 1);
    __m256i cd = _mm256_inserti128_si256(_mm256_castsi128_si256(load128(c)), load128(d), 1);

    return _mm512_inserti64x4(_mm512_castsi256_si512(ab), cd, 1);
}
/* element j of part i becomes element i of part j */
INLINE __m512 transpose4(__m512 v)
{
    const __m512i idx = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);

    return _mm512_permutexvar_ps(idx, v);
}
