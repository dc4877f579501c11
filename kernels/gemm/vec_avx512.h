/* Sixteen rows on their side: row r is element r of every register. The types' openings (X_open.h)
 * are written with these names alone, so that they serve vec_avx2.h as well. */
#pragma once
#include "kernels/dot/dot.h"
#include "kernels/num.h"
#include "kernels/quantise/quantise.h"
#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
#define VEC_AVX512

typedef __m512i vec;
typedef __m512 vecf;
/* rows of a panel, vectors of a tile (their integer sums are in registers) */
enum { ROWS = 16, TILE = 8 };

INLINE __m128i load128(const void *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}
INLINE vec v_zero(void)
{
    return _mm512_setzero_si512();
}
INLINE vec v_load(const void *p) /* aligned, as v_store */
{
    return _mm512_load_si512(p);
}
INLINE void v_store(void *p, vec v)
{
    _mm512_store_si512(p, v);
}
INLINE vec v_set8(int x)
{
    return _mm512_set1_epi8((char)x);
}
INLINE vec v_set32(uint32_t x)
{
    return _mm512_set1_epi32((int)x);
}
INLINE vec v_and(vec a, vec b)
{
    return _mm512_and_si512(a, b);
}
INLINE vec v_or(vec a, vec b)
{
    return _mm512_or_si512(a, b);
}
INLINE vec v_xor(vec a, vec b)
{
    return _mm512_xor_si512(a, b);
}
INLINE vec v_sub8(vec a, vec b)
{
    return _mm512_sub_epi8(a, b);
}
INLINE vec v_add32(vec a, vec b)
{
    return _mm512_add_epi32(a, b);
}
INLINE vec v_sub32(vec a, vec b)
{
    return _mm512_sub_epi32(a, b);
}
INLINE vec v_left(vec a, int n)
{
    return _mm512_slli_epi32(a, (unsigned)n);
}
INLINE vec v_right(vec a, int n)
{
    return _mm512_srli_epi32(a, (unsigned)n);
}
INLINE vec v_right_signed(vec a, int n)
{
    return _mm512_srai_epi32(a, (unsigned)n);
}
INLINE vec v_left_each(vec a, vec n)
{
    return _mm512_sllv_epi32(a, n);
}
/* per element: a < b (int32) ? x : y */
INLINE vec v_if_less(vec a, vec b, vec x, vec y)
{
    return _mm512_mask_mov_epi32(y, _mm512_cmplt_epi32_mask(a, b), x);
}
/* a table of sixteen bytes, add added, and bytes looked up in it by bytes 0..15 */
INLINE vec v_table(const int8_t *table, int add)
{
    return _mm512_add_epi8(_mm512_broadcast_i32x4(load128(table)), v_set8(add));
}
INLINE vec v_look_up(vec table, vec index)
{
    return _mm512_shuffle_epi8(table, index);
}
/* bits at.. at + 3 of each element to bit 4 of its four bytes */
INLINE vec v_four_bits(vec v, int at)
{
    const __m512i spread =
        _mm512_setr_epi32(0x00000000, 0x00000010, 0x00001000, 0x00001010, 0x00100000, 0x00100010,
                          0x00101000, 0x00101010, 0x10000000, 0x10000010, 0x10001000, 0x10001010,
                          0x10100000, 0x10100010, 0x10101000, 0x10101010);

    return _mm512_permutexvar_epi32(v_right(v, at), spread);
}

INLINE vecf f_load(const void *p) /* aligned, as f_store */
{
    return _mm512_load_ps(p);
}
INLINE void f_store(void *p, vecf v)
{
    _mm512_store_ps(p, v);
}
INLINE vecf f_set(float x)
{
    return _mm512_set1_ps(x);
}
INLINE vecf f_bits(vec v)
{
    return _mm512_castsi512_ps(v);
}
INLINE vecf f_from_int(vec v)
{
    return _mm512_cvtepi32_ps(v);
}
INLINE vecf f_add(vecf a, vecf b)
{
    return _mm512_add_ps(a, b);
}
INLINE vecf f_sub(vecf a, vecf b)
{
    return _mm512_sub_ps(a, b);
}
INLINE vecf f_mul(vecf a, vecf b)
{
    return _mm512_mul_ps(a, b);
}
INLINE vecf f_fma(vecf a, vecf b, vecf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
/* the low halves of the elements, as binary16 */
INLINE vecf f_from_f16(vec v)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
}
/* -0 to +0, NaN canonical (rules 12 and 14), the first n rows to y */
INLINE void f_finish(float *y, vecf v, size_t n)
{
    v = _mm512_add_ps(v, _mm512_setzero_ps());
    v = _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q),
                           _mm512_castsi512_ps(v_set32(F32_NAN_BITS)));
    _mm512_mask_storeu_ps(y, n < 16 ? (__mmask16)((1u << n) - 1) : (__mmask16)0xFFFF, v);
}

/* places in the rows of a panel */
struct rows {
    const uint8_t *at[ROWS];
};

/* Sixteen bytes at `at` of every row: c[i] has bytes 4i.. of each. */
INLINE void turn16(const struct rows *x, size_t at, vec c[4])
{
    __m512i v[4], a[4];

    for (int e = 0; e < 4; e++) { /* rows e, e + 4, .. in the four parts */
        v[e] = _mm512_castsi128_si512(load128(x->at[e] + at));
        v[e] = _mm512_inserti32x4(v[e], load128(x->at[e + 4] + at), 1);
        v[e] = _mm512_inserti32x4(v[e], load128(x->at[e + 8] + at), 2);
        v[e] = _mm512_inserti32x4(v[e], load128(x->at[e + 12] + at), 3);
    }
    a[0] = _mm512_unpacklo_epi32(v[0], v[1]);
    a[1] = _mm512_unpackhi_epi32(v[0], v[1]);
    a[2] = _mm512_unpacklo_epi32(v[2], v[3]);
    a[3] = _mm512_unpackhi_epi32(v[2], v[3]);
    c[0] = _mm512_unpacklo_epi64(a[0], a[2]);
    c[1] = _mm512_unpackhi_epi64(a[0], a[2]);
    c[2] = _mm512_unpacklo_epi64(a[1], a[3]);
    c[3] = _mm512_unpackhi_epi64(a[1], a[3]);
}
/* the same of 64 bytes */
INLINE void turn64(const struct rows *x, size_t at, vec c[16])
{
    __m512i v[16], a[16], b[16];

    for (int r = 0; r < 16; r++)
        v[r] = _mm512_loadu_si512(x->at[r] + at);
    for (int i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) { /* b[i + k]: columns k, k + 4, .. of rows i.. i + 3 */
        b[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
        b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
        b[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
        b[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    for (int k = 0; k < 4; k++) {
        __m512i even0 = _mm512_shuffle_i32x4(b[k], b[k + 4], 0x88); /* columns k and k + 8 */
        __m512i even1 = _mm512_shuffle_i32x4(b[k + 8], b[k + 12], 0x88);
        __m512i odd0 = _mm512_shuffle_i32x4(b[k], b[k + 4], 0xDD);
        __m512i odd1 = _mm512_shuffle_i32x4(b[k + 8], b[k + 12], 0xDD);

        c[k] = _mm512_shuffle_i32x4(even0, even1, 0x88);
        c[k + 4] = _mm512_shuffle_i32x4(odd0, odd1, 0x88);
        c[k + 8] = _mm512_shuffle_i32x4(even0, even1, 0xDD);
        c[k + 12] = _mm512_shuffle_i32x4(odd0, odd1, 0xDD);
    }
}
