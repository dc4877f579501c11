/* What the AVX-512 forms share: how rows and vectors are cut, and how sixteen rows are turned on
 * their side, so that row r is element r of every register. */
#pragma once
#include "kernels/dot/dot.h"
#include "kernels/num.h"
#include "kernels/quantise/quantise.h"
#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

/* Vectors of a tile (its integer sums are in registers), and of a block (a unit's values are opened
 * once for all of them; their float sums lie on the stack, in the second cache level). */
enum { TILE = 8, BLOCK_TOKENS = 256 };

/* where the vectors of a tile lie; missing ones are the last one again (rule 16) */
struct tile {
    const uint8_t *at[TILE];
};
INLINE struct tile tile_open(const struct dot_job *job, size_t i, size_t n)
{
    struct tile t;

    for (size_t k = 0; k < TILE; k++)
        t.at[k] = job_act(job, i + (k < n ? k : n - 1));
    return t;
}

/* places in the sixteen rows of a panel */
struct rows {
    const uint8_t *at[16];
};
/* missing rows are the last one again */
INLINE struct rows rows_open(const struct dot_job *job, size_t r)
{
    struct rows x;

    for (size_t k = 0; k < 16; k++) {
        size_t row = r + k < job->n_rows ? r + k : job->n_rows - 1;
        x.at[k] = job->w + row * job->row_bytes;
    }
    return x;
}
INLINE struct rows rows_plus(const struct rows *x, size_t bytes)
{
    struct rows y;

    for (size_t k = 0; k < 16; k++)
        y.at[k] = x->at[k] + bytes;
    return y;
}
INLINE void rows_fetch(const struct rows *x, size_t from, size_t to)
{
    for (size_t k = 0; k < 16; k++)
        for (size_t o = from; o < to; o += 64)
            _mm_prefetch((const char *)x->at[k] + o, _MM_HINT_T1);
}

INLINE __m512i load512(const void *p)
{
    return _mm512_loadu_si512(p);
}
INLINE __m128i load128(const void *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}
/* four bytes of a vector, to every element */
INLINE __m512i bytes4(const uint8_t *p)
{
    return _mm512_set1_epi32((int)load_u32(p));
}
INLINE __m512 float1(const uint8_t *p)
{
    return _mm512_set1_ps(load_f32(p));
}
/* value, NaN canonical, -0 to +0; the first n of sixteen rows */
INLINE void finish_rows(float *y, __m512 v, size_t n)
{
    v = _mm512_add_ps(v, _mm512_setzero_ps());
    v = _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q),
                           _mm512_castsi512_ps(_mm512_set1_epi32((int)F32_NAN_BITS)));
    _mm512_mask_storeu_ps(y, n < 16 ? (__mmask16)((1u << n) - 1) : (__mmask16)0xFFFF, v);
}

/* Sixteen bytes at `at` of sixteen rows: c[i] has bytes 4i.. of each. */
INLINE void turn16(const struct rows *x, size_t at, __m512i c[4])
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
/* v: 64 bytes of each of sixteen rows; c[i]: bytes 4i.. of each */
INLINE void turn(const __m512i v[16], __m512i c[16])
{
    __m512i a[16], b[16];

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
INLINE void turn64(const struct rows *x, size_t at, __m512i c[16])
{
    __m512i v[16];

    for (int r = 0; r < 16; r++)
        v[r] = load512(x->at[r] + at);
    turn(v, c);
}

/* the low halves of sixteen elements, as binary16 */
INLINE __m512 low_f16(__m512i v)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
}
INLINE __m512 high_f16(__m512i v)
{
    return low_f16(_mm512_srli_epi32(v, 16));
}
/* bits of every byte: (v >> shift) & mask, and (v << shift) & mask */
INLINE __m512i bits_right(__m512i v, int shift, int mask)
{
    return _mm512_and_si512(_mm512_srli_epi32(v, (unsigned)shift), _mm512_set1_epi8((char)mask));
}
INLINE __m512i bits_left(__m512i v, int shift, int mask)
{
    return _mm512_and_si512(_mm512_slli_epi32(v, (unsigned)shift), _mm512_set1_epi8((char)mask));
}
INLINE __m512i or512(__m512i a, __m512i b)
{
    return _mm512_or_si512(a, b);
}
/* a table of sixteen signed bytes for _mm512_shuffle_epi8, made unsigned */
INLINE __m512i table_shifted(const int8_t *table, int shift)
{
    return _mm512_add_epi8(_mm512_broadcast_i32x4(load128(table)), _mm512_set1_epi8((char)shift));
}
