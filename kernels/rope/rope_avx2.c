/* Turning: eight pairs at a time. The table: four angles. */
#include "kernels/rope/rope.h"

#include "kernels/func/func_avx2.h"
#include "kernels/func/hostmath.h"
#include "kernels/func/hostmath_avx2.h"

void rope_row_avx2(double base, uint32_t n_rot, uint64_t position, float *cos, float *sin)
{
    const __m256d sign = _mm256_set1_pd(-0.0), ln_base = _mm256_set1_pd(h_ln(base));
    const __m256d d = _mm256_set1_pd(n_rot), at = _mm256_set1_pd((double)position);
    const __m128i four = _mm_setr_epi32(0, 1, 2, 3);
    uint32_t half = n_rot / 2;

    for (uint32_t i = 0; i < half; i += 4) {
        __m128i lane = _mm_add_epi32(_mm_set1_epi32((int)i), four);
        __m128i part = _mm_cmplt_epi32(four, _mm_set1_epi32(half - i < 4 ? (int)(half - i) : 4));
        __m256d t = _mm256_div_pd(_mm256_cvtepi32_pd(_mm_slli_epi32(lane, 1)), d);
        __m256d inv = _mm256_xor_pd(sign, _mm256_mul_pd(t, ln_base)), s, c;

        h_exp4(&inv, 1);
        h_sincos4(_mm256_mul_pd(at, inv), &s, &c);
        _mm_maskstore_ps(cos + i, part, _mm256_cvtpd_ps(c));
        _mm_maskstore_ps(sin + i, part, _mm256_cvtpd_ps(s));
    }
}

void rope_neox_avx2(float *x, uint32_t n_rot, const float *cos, const float *sin)
{
    size_t half = n_rot / 2;

    for (size_t i = 0; i < half; i += 8) {
        __m256i part = first8(half - i);
        __m256 a = _mm256_maskload_ps(x + i, part), b = _mm256_maskload_ps(x + i + half, part);
        __m256 c = _mm256_maskload_ps(cos + i, part), s = _mm256_maskload_ps(sin + i, part);

        _mm256_maskstore_ps(x + i, part, canon8(_mm256_fnmadd_ps(b, s, _mm256_mul_ps(a, c))));
        _mm256_maskstore_ps(x + i + half, part, canon8(_mm256_fmadd_ps(a, s, _mm256_mul_ps(b, c))));
    }
}
