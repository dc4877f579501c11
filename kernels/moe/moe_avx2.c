/* The sums, 32 and 8 elements at a time. */
#include "kernels/moe/moe.h"

#include "kernels/func/func_avx2.h"

void moe_sum_avx2(const float *w, const float *const *rows, uint32_t k, float *acc, size_t n)
{
    size_t i = 0;

    for (; i + 32 <= n; i += 32) {
        __m256 a[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                       _mm256_setzero_ps()};

        for (uint32_t p = 0; p < k; p++) {
            __m256 f = _mm256_set1_ps(w[p]);

            for (int r = 0; r < 4; r++)
                a[r] = _mm256_fmadd_ps(f, _mm256_loadu_ps(rows[p] + i + 8 * r), a[r]);
        }
        for (int r = 0; r < 4; r++)
            _mm256_storeu_ps(acc + i + 8 * r, canon8(a[r]));
    }
    for (; i < n; i += 8) {
        __m256i part = first8(n - i);
        __m256 a = _mm256_setzero_ps();

        for (uint32_t p = 0; p < k; p++)
            a = _mm256_fmadd_ps(_mm256_set1_ps(w[p]), _mm256_maskload_ps(rows[p] + i, part), a);
        _mm256_maskstore_ps(acc + i, part, canon8(a));
    }
}

#define EACH(name, param, expr)                                                                    \
    void name param                                                                                \
    {                                                                                              \
        size_t i = 0;                                                                              \
                                                                                                   \
        for (; i + 8 <= n; i += 8) {                                                               \
            __m256 X = _mm256_loadu_ps(x + i), Y = _mm256_loadu_ps(y + i);                         \
            _mm256_storeu_ps(x + i, canon8(expr));                                                 \
        }                                                                                          \
        if (i < n) {                                                                               \
            __m256i part = first8(n - i);                                                          \
            __m256 X = _mm256_maskload_ps(x + i, part), Y = _mm256_maskload_ps(y + i, part);       \
            _mm256_maskstore_ps(x + i, part, canon8(expr));                                        \
        }                                                                                          \
    }

EACH(vec_add_avx2, (float *x, const float *y, size_t n), _mm256_add_ps(X, Y))
EACH(vec_mul_avx2, (float *x, const float *y, size_t n), _mm256_mul_ps(X, Y))
EACH(vec_fma1_avx2, (float a, const float *y, float *x, size_t n),
     _mm256_fmadd_ps(_mm256_set1_ps(a), Y, X))
