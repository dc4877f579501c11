/* The sums come from sum_avx2.c; here is the scaling, eight elements at a time. */
#include "kernels/norm/norm.h"

#include "kernels/sum/sum.h"
#include "kernels/sum/sum_avx2.h"

#include <math.h>

/* y_i = (x_i * s) [* w_i] [* act_i]; the branches on w and act are the same in every round */
static inline void scale(const float *x, float s, const float *w, const float *act, float *y,
                         size_t n)
{
    __m256 f = _mm256_set1_ps(s);

    for (size_t i = 0; i < n; i += 8) {
        if (i + 8 <= n) {
            __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x + i), f);

            if (w)
                v = _mm256_mul_ps(v, _mm256_loadu_ps(w + i));
            if (act)
                v = _mm256_mul_ps(v, _mm256_loadu_ps(act + i));
            _mm256_storeu_ps(y + i, canon8(v));
        } else {
            __m256i part = first8(n - i);
            __m256 v = _mm256_mul_ps(_mm256_maskload_ps(x + i, part), f);

            if (w)
                v = _mm256_mul_ps(v, _mm256_maskload_ps(w + i, part));
            if (act)
                v = _mm256_mul_ps(v, _mm256_maskload_ps(act + i, part));
            _mm256_maskstore_ps(y + i, part, canon8(v));
        }
    }
}

void rms_norm_avx2(const float *x, const float *w, float *y, size_t n, float eps)
{
    float s = 1.0f / sqrtf(dot32_avx2(x, x, n) / (float)n + eps);

    if (w)
        scale(x, s, w, NULL, y, n);
    else
        scale(x, s, NULL, NULL, y, n);
}

void rms_norm_gated_avx2(const float *x, const float *w, const float *act, float *y, size_t n,
                         float eps)
{
    scale(x, 1.0f / sqrtf(dot32_avx2(x, x, n) / (float)n + eps), w, act, y, n);
}

void l2_norm_avx2(const float *x, float *y, size_t n, float eps)
{
    scale(x, 1.0f / sqrtf(dot32_avx2(x, x, n) + eps), NULL, NULL, y, n);
}

void layer_norm_avx2(const float *x, const float *w, const float *b, float *y, size_t n, float eps)
{
    float m = sum32_avx2(x, n) / (float)n;
    __m256 mean = _mm256_set1_ps(m), f;

    for (size_t i = 0; i < n; i += 8) {
        __m256i part = first8(n - i);
        _mm256_maskstore_ps(y + i, part, _mm256_sub_ps(_mm256_maskload_ps(x + i, part), mean));
    }
    f = _mm256_set1_ps(1.0f / sqrtf(dot32_avx2(y, y, n) / (float)n + eps));
    for (size_t i = 0; i < n; i += 8) {
        __m256i part = first8(n - i);
        __m256 v = _mm256_mul_ps(_mm256_maskload_ps(y + i, part), f);

        v = _mm256_fmadd_ps(v, _mm256_maskload_ps(w + i, part), _mm256_maskload_ps(b + i, part));
        _mm256_maskstore_ps(y + i, part, canon8(v));
    }
}
