/* The sums of grid4_vbmi.h, included after a type's definitions. */
#include "kernels/dot/grid4_vbmi.h"

/* a unit of a vector */
struct turned {
    int8_t q[4][64];
    int32_t minus[16]; /* of four entries, times -OFFSET */
};

INLINE void turn(const struct act *act, size_t u, struct turned *t)
{
    const __m512i by_value = _mm512_set_epi64(
        0x3F3B37332F2B2723, 0x1F1B17130F0B0703, 0x3E3A36322E2A2622, 0x1E1A16120E0A0602,
        0x3D3935312D292521, 0x1D1915110D090501, 0x3C3834302C282420, 0x1C1814100C080400);
    __m512i v[4], a, b; /* [i] part k: value k of entries 16i.. */

#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        v[i] = _mm512_permutexvar_epi8(by_value, load512(act->q + 256 * u + 64 * i));
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        a = h ? _mm512_shuffle_i32x4(v[0], v[1], 0xEE) : _mm512_shuffle_i32x4(v[0], v[1], 0x44);
        b = h ? _mm512_shuffle_i32x4(v[2], v[3], 0xEE) : _mm512_shuffle_i32x4(v[2], v[3], 0x44);
        _mm512_store_si512(t->q[2 * h], _mm512_shuffle_i32x4(a, b, 0x88));
        _mm512_store_si512(t->q[2 * h + 1], _mm512_shuffle_i32x4(a, b, 0xDD));
    }
    _mm512_store_si512(
        t->minus, _mm512_mullo_epi32(_mm512_cvtepi16_epi32(load256((const int16_t *)act->sum + 16 * u)),
                                     _mm512_set1_epi32(-OFFSET)));
}

/* S of x's row and n_tok vectors: sixteen numbers to be added. Opens what comes next meanwhile. */
INLINE void sums(struct opened *x, struct opened *next, const struct turned *const t[],
                 const int n_tok, __m512i *acc)
{
    for (int i = 0; i < n_tok; i++)
        acc[i] = OFFSET ? load512(t[i]->minus) : _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        __mmask64 negative =
            _mm512_test_epi8_mask(x->signs, _mm512_set1_epi16((short)(0x1001u << k)));
        __m512i w = value(x, k);

        open_part(next, k);
        for (int i = 0; i < n_tok; i++) {
            __m512i q = load512(t[i]->q[k]);

            if (!OFFSET)
                q = _mm512_mask_sub_epi8(q, negative, _mm512_setzero_si512(), q);
            acc[i] = _mm512_dpbusd_epi32(acc[i], w, q);
        }
    }
    for (int i = 0; i < n_tok; i++)
        acc[i] = _mm512_mullo_epi32(acc[i], x->scale);
}

/* the sums of sixteen rows, in order */
INLINE __m512i fold16(const __m512i acc[16])
{
    return sum_parts(combine4(acc[0], acc[1], acc[2], acc[3]),
                     combine4(acc[4], acc[5], acc[6], acc[7]),
                     combine4(acc[8], acc[9], acc[10], acc[11]),
                     combine4(acc[12], acc[13], acc[14], acc[15]));
}
