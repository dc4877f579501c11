/* The two passes of a softmax that attention shares. */
#pragma once
#include "kernels/sum/sum_avx2.h"

/* the largest of n >= 1 floats; any answer where one is NaN */
static inline float max_avx2(const float *x, size_t n)
{
    __m256 m = _mm256_set1_ps(x[0]);
    __m128 q;
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        m = _mm256_max_ps(m, _mm256_loadu_ps(x + i));
    if (i < n) {
        __m256i part = first8(n - i);
        m = keep8(part, _mm256_max_ps(m, _mm256_maskload_ps(x + i, part)), m);
    }
    q = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

/* p_i = exp(x_i - m), and their SUM32 with x_0 in lane 0. x and p may be the same array. */
static inline float exp_sum_avx2(const float *x, float m, float *p, size_t n)
{
    __m256 l[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                   _mm256_setzero_ps()};
    __m256 mm = _mm256_set1_ps(m);
    size_t i = 0;

    for (; i + 32 <= n; i += 32)
        for (int r = 0; r < 4; r++) {
            __m256 e = exp8(_mm256_sub_ps(_mm256_loadu_ps(x + i + 8 * r), mm));

            _mm256_storeu_ps(p + i + 8 * r, e);
            l[r] = _mm256_add_ps(l[r], e);
        }
    for (int r = 0; i < n; r++, i += 8) {
        __m256i part = first8(n - i);
        __m256 e = exp8(_mm256_sub_ps(_mm256_maskload_ps(x + i, part), mm));

        _mm256_maskstore_ps(p + i, part, e);
        l[r] = keep8(part, _mm256_add_ps(l[r], e), l[r]);
    }
    return fold32(l);
}
