/* The passes over the streams, eight elements at a time. */
#include "kernels/hyper/hyper.h"

#include "kernels/func/func_avx2.h"

#include <assert.h>

void hyper_collapse_avx2(const float *pre, const float *X, size_t n, size_t d, float *x)
{
    for (size_t i = 0; i < d; i += 8) {
        __m256i part = first8(d - i);
        __m256 acc = _mm256_setzero_ps();

        for (size_t s = 0; s < n; s++)
            acc = _mm256_fmadd_ps(_mm256_set1_ps(pre[s]), _mm256_maskload_ps(X + s * d + i, part),
                                  acc);
        _mm256_maskstore_ps(x + i, part, canon8(acc));
    }
}

void hyper_expand_avx2(const float *post, const float *C, const float *y, float *X, size_t n,
                       size_t d)
{
    assert(n <= HYPER_STREAMS);
    for (size_t i = 0; i < d; i += 8) {
        __m256i part = first8(d - i);
        __m256 before[HYPER_STREAMS], new = _mm256_maskload_ps(y + i, part);

        for (size_t u = 0; u < n; u++)
            before[u] = _mm256_maskload_ps(X + u * d + i, part);
        for (size_t j = 0; j < n; j++) {
            __m256 acc = _mm256_mul_ps(_mm256_set1_ps(post[j]), new);

            for (size_t u = 0; u < n; u++)
                acc = _mm256_fmadd_ps(_mm256_set1_ps(C[u * n + j]), before[u], acc);
            _mm256_maskstore_ps(X + j * d + i, part, canon8(acc));
        }
    }
}

void hyper_mean_avx2(const float *X, size_t n, size_t d, float *x)
{
    __m256 count = _mm256_set1_ps((float)n);

    for (size_t i = 0; i < d; i += 8) {
        __m256i part = first8(d - i);
        __m256 acc = _mm256_setzero_ps();

        for (size_t s = 0; s < n; s++)
            acc = _mm256_add_ps(acc, _mm256_maskload_ps(X + s * d + i, part));
        _mm256_maskstore_ps(x + i, part, canon8(_mm256_div_ps(acc, count)));
    }
}
