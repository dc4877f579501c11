/* Rule 23's exp and sine, cosine, in registers of four doubles; the same operations in the same
 * order as hostmath.c. */
#pragma once
#include <immintrin.h>

/* n registers side by side, |x| < 700: their divisions and chains overlap */
static inline __attribute__((always_inline)) void h_exp4(__m256d *x, const int n)
{
    const __m256d one = _mm256_set1_pd(1.0);
    __m256d k[4], r[4], p[4];

    for (int i = 0; i < n; i++) {
        k[i] = _mm256_round_pd(_mm256_mul_pd(x[i], _mm256_set1_pd(0x1.71547652b82fep+0)),
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        r[i] = _mm256_fmadd_pd(k[i], _mm256_set1_pd(-0x1.62e42fefa39efp-1), x[i]);
        r[i] = _mm256_fmadd_pd(k[i], _mm256_set1_pd(-0x1.abc9e3b39803fp-56), r[i]);
        p[i] = one;
    }
    for (int j = 18; j >= 1; j--)
        for (int i = 0; i < n; i++)
            p[i] = _mm256_fmadd_pd(_mm256_div_pd(r[i], _mm256_set1_pd(j)), p[i], one);
    for (int i = 0; i < n; i++) {
        __m256i e = _mm256_add_epi64(_mm256_cvtepi32_epi64(_mm256_cvtpd_epi32(k[i])),
                                     _mm256_set1_epi64x(1023));
        x[i] = _mm256_mul_pd(p[i], _mm256_castsi256_pd(_mm256_slli_epi64(e, 52)));
    }
}

/* 0 <= x < 2^21 */
static inline void h_sincos4(__m256d x, __m256d *s, __m256d *c)
{
    const __m256d one = _mm256_set1_pd(1.0), sign = _mm256_set1_pd(-0.0);
    __m256d n, r, z, S = one, C = one, odd, flip_s, flip_c;
    __m256i q;

    n = _mm256_round_pd(_mm256_mul_pd(x, _mm256_set1_pd(0x1.45f306dc9c883p-1)),
                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    r = _mm256_fmadd_pd(n, _mm256_set1_pd(-0x1.921fb54442d18p+0), x);
    r = _mm256_fmadd_pd(n, _mm256_set1_pd(-0x1.1a62633145c07p-54), r);
    z = _mm256_mul_pd(r, r);
    for (int k = 8; k >= 1; k--)
        S = _mm256_fnmadd_pd(_mm256_div_pd(z, _mm256_set1_pd(2 * k * (2 * k + 1))), S, one);
    S = _mm256_mul_pd(r, S);
    for (int k = 9; k >= 1; k--)
        C = _mm256_fnmadd_pd(_mm256_div_pd(z, _mm256_set1_pd((2 * k - 1) * 2 * k)), C, one);
    /* quadrant 0 (S, C), 1 (C, -S), 2 (-S, -C), 3 (-C, S) */
    q = _mm256_cvtepi32_epi64(_mm256_cvtpd_epi32(n));
    odd = _mm256_castsi256_pd(_mm256_slli_epi64(q, 63));
    flip_s = _mm256_and_pd(sign, _mm256_castsi256_pd(_mm256_slli_epi64(q, 62)));
    q = _mm256_add_epi64(q, _mm256_set1_epi64x(1));
    flip_c = _mm256_and_pd(sign, _mm256_castsi256_pd(_mm256_slli_epi64(q, 62)));
    *s = _mm256_xor_pd(_mm256_blendv_pd(S, C, odd), flip_s);
    *c = _mm256_xor_pd(_mm256_blendv_pd(C, S, odd), flip_c);
}
