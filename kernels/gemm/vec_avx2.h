/* Eight rows on their side, as vec_avx512.h has sixteen: the same names. */
#pragma once
#include "kernels/dot/dot.h"
#include "kernels/num.h"
#include "kernels/quantise/quantise.h"
#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

typedef __m256i vec;
typedef __m256 vecf;
enum { ROWS = 8, TILE = 4 };

INLINE __m128i load128(const void *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}
INLINE vec v_zero(void)
{
    return _mm256_setzero_si256();
}
INLINE vec v_load(const void *p)
{
    return _mm256_load_si256((const __m256i *)p);
}
INLINE void v_store(void *p, vec v)
{
    _mm256_store_si256((__m256i *)p, v);
}
INLINE vec v_set8(int x)
{
    return _mm256_set1_epi8((char)x);
}
INLINE vec v_set32(uint32_t x)
{
    return _mm256_set1_epi32((int)x);
}
INLINE vec v_and(vec a, vec b)
{
    return _mm256_and_si256(a, b);
}
INLINE vec v_or(vec a, vec b)
{
    return _mm256_or_si256(a, b);
}
INLINE vec v_xor(vec a, vec b)
{
    return _mm256_xor_si256(a, b);
}
INLINE vec v_sub8(vec a, vec b)
{
    return _mm256_sub_epi8(a, b);
}
INLINE vec v_add32(vec a, vec b)
{
    return _mm256_add_epi32(a, b);
}
INLINE vec v_sub32(vec a, vec b)
{
    return _mm256_sub_epi32(a, b);
}
INLINE vec v_left(vec a, int n)
{
    return _mm256_slli_epi32(a, n);
}
INLINE vec v_right(vec a, int n)
{
    return _mm256_srli_epi32(a, n);
}
INLINE vec v_right_signed(vec a, int n)
{
    return _mm256_srai_epi32(a, n);
}
INLINE vec v_left_each(vec a, vec n)
{
    return _mm256_sllv_epi32(a, n);
}
INLINE vec v_if_less(vec a, vec b, vec x, vec y)
{
    return _mm256_blendv_epi8(y, x, _mm256_cmpgt_epi32(b, a));
}
INLINE vec v_table(const int8_t *table, int add)
{
    return _mm256_add_epi8(_mm256_broadcastsi128_si256(load128(table)), v_set8(add));
}
INLINE vec v_look_up(vec table, vec index)
{
    return _mm256_shuffle_epi8(table, index);
}
INLINE vec v_four_bits(vec v, int at)
{
    const __m256i firsts =
        _mm256_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12, /* */
                         0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12);
    const __m256i bit = _mm256_set1_epi32(0x08040201);

    v = _mm256_and_si256(_mm256_shuffle_epi8(v_right(v, at), firsts), bit);
    return _mm256_and_si256(_mm256_cmpeq_epi8(v, bit), v_set8(16));
}

/* a sum that is wanted now: left alone, the compiler holds all terms of a long sum, and spills them
 */
INLINE vec v_now(vec sum)
{
    __asm__("" : "+x"(sum));
    return sum;
}

INLINE vecf f_load(const void *p)
{
    return _mm256_load_ps(p);
}
INLINE void f_store(void *p, vecf v)
{
    _mm256_store_ps(p, v);
}
INLINE vecf f_set(float x)
{
    return _mm256_set1_ps(x);
}
INLINE vecf f_bits(vec v)
{
    return _mm256_castsi256_ps(v);
}
INLINE vecf f_from_int(vec v)
{
    return _mm256_cvtepi32_ps(v);
}
INLINE vecf f_add(vecf a, vecf b)
{
    return _mm256_add_ps(a, b);
}
INLINE vecf f_sub(vecf a, vecf b)
{
    return _mm256_sub_ps(a, b);
}
INLINE vecf f_mul(vecf a, vecf b)
{
    return _mm256_mul_ps(a, b);
}
INLINE vecf f_fma(vecf a, vecf b, vecf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
INLINE vecf f_from_f16(vec v)
{
    v = _mm256_and_si256(v, v_set32(0xFFFF)); /* so that the packing does not saturate */
    v = _mm256_permute4x64_epi64(_mm256_packus_epi32(v, v), 0x08);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(v));
}
INLINE void f_finish(float *y, vecf v, size_t n)
{
    float row[8];

    v = _mm256_add_ps(v, _mm256_setzero_ps());
    v = _mm256_blendv_ps(v, f_bits(v_set32(F32_NAN_BITS)), _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    if (n >= 8) {
        _mm256_storeu_ps(y, v);
        return;
    }
    _mm256_storeu_ps(row, v);
    memcpy(y, row, n * sizeof *y);
}

struct rows {
    const uint8_t *at[ROWS];
};

INLINE void turn16(const struct rows *x, size_t at, vec c[4])
{
    __m256i v[4], a[4];

    for (int e = 0; e < 4; e++) /* rows e and e + 4 in the two parts */
        v[e] = _mm256_inserti128_si256(_mm256_castsi128_si256(load128(x->at[e] + at)),
                                       load128(x->at[e + 4] + at), 1);
    a[0] = _mm256_unpacklo_epi32(v[0], v[1]);
    a[1] = _mm256_unpackhi_epi32(v[0], v[1]);
    a[2] = _mm256_unpacklo_epi32(v[2], v[3]);
    a[3] = _mm256_unpackhi_epi32(v[2], v[3]);
    c[0] = _mm256_unpacklo_epi64(a[0], a[2]);
    c[1] = _mm256_unpackhi_epi64(a[0], a[2]);
    c[2] = _mm256_unpacklo_epi64(a[1], a[3]);
    c[3] = _mm256_unpackhi_epi64(a[1], a[3]);
}
INLINE void turn64(const struct rows *x, size_t at, vec c[16])
{
    for (size_t k = 0; k < 4; k++)
        turn16(x, at + 16 * k, c + 4 * k);
}
