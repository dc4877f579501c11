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
/* a's parts added in pairs, then b's */
INLINE __m512i pair_parts(__m512i a, __m512i b)
{
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xDD));
}
/* part i of the result is the sum of the four parts of argument i */
INLINE __m512i sum_parts(__m512i a, __m512i b, __m512i c, __m512i d)
{
    return pair_parts(pair_parts(a, b), pair_parts(c, d));
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
INLINE __m512i join256(__m256i low, __m256i high)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
INLINE __m512 join_parts(const __m128 v[4])
{
    __m256 low = _mm256_insertf128_ps(_mm256_castps128_ps256(v[0]), v[1], 1);
    __m256 high = _mm256_insertf128_ps(_mm256_castps128_ps256(v[2]), v[3], 1);

    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}
/* four loads of 128 bits */
INLINE __m512i load_parts(const void *a, const void *b, const void *c, const void *d)
{
    __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(load128(a)), load128(b), 1);
    __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(load128(c)), load128(d), 1);

    return join256(low, high);
}
/* element j of part i becomes element i of part j */
INLINE __m512 transpose4(__m512 v)
{
    const __m512i idx = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);

    return _mm512_permutexvar_ps(idx, v);
}
/* 64-bit word j, for a constant j */
INLINE __mmask64 sign_mask(__m256i words, int j)
{
    __m128i half = j < 2 ? _mm256_castsi256_si128(words) : _mm256_extracti128_si256(words, 1);

    return (__mmask64)(j % 2 ? _mm_extract_epi64(half, 1) : _mm_cvtsi128_si64(half));
}
/* head.shift for signed values that are made unsigned by adding 128 */
INLINE __m256i shift_signed(__m256i scales)
{
    __m128i even = _mm256_castsi256_si128(scales), odd = _mm256_extracti128_si256(scales, 1);
    __m256i in_order =
        _mm256_setr_m128i(_mm_unpacklo_epi16(even, odd), _mm_unpackhi_epi16(even, odd));

    return _mm256_mullo_epi16(in_order, _mm256_set1_epi16(-128));
}

/* value, NaN canonical, -0 to +0 */
INLINE __m512 finish16(__m512 y)
{
    y = _mm512_add_ps(y, _mm512_setzero_ps());
    return _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(y, y, _CMP_UNORD_Q),
                              _mm512_castsi512_ps(_mm512_set1_epi32((int)F32_NAN_BITS)));
}

/* sixteen rows of 64 bytes to sixteen columns of sixteen int32: out[c] has column c of all rows */
INLINE void transpose16(const __m512i in[16], uint8_t *out)
{
    __m512i a[16], b[16];

    for (int i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_epi32(in[i], in[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(in[i], in[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) { /* b[i + c]: columns c, c + 4, .. of rows i.. i + 3 */
        b[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
        b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
        b[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
        b[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    for (int c = 0; c < 4; c++) {
        __m512i even0 = _mm512_shuffle_i32x4(b[c], b[c + 4], 0x88); /* parts 0 and 2 */
        __m512i even1 = _mm512_shuffle_i32x4(b[c + 8], b[c + 12], 0x88);
        __m512i odd0 = _mm512_shuffle_i32x4(b[c], b[c + 4], 0xDD);
        __m512i odd1 = _mm512_shuffle_i32x4(b[c + 8], b[c + 12], 0xDD);

        _mm512_storeu_si512(out + 64 * c, _mm512_shuffle_i32x4(even0, even1, 0x88));
        _mm512_storeu_si512(out + 64 * (c + 4), _mm512_shuffle_i32x4(odd0, odd1, 0x88));
        _mm512_storeu_si512(out + 64 * (c + 8), _mm512_shuffle_i32x4(even0, even1, 0xDD));
        _mm512_storeu_si512(out + 64 * (c + 12), _mm512_shuffle_i32x4(odd0, odd1, 0xDD));
    }
}
