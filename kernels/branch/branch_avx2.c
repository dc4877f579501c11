/* The passes over the streams, eight elements at a time. */
#include "kernels/branch/branch.h"

#include "kernels/func/func_avx2.h"
#include "kernels/sum/sum.h"

void branch_mean_avx2(const float *g, const float *x, size_t n, size_t d, float *m)
{
    __m256 count = _mm256_set1_ps((float)n);

    for (size_t i = 0; i < d; i += 8) {
        __m256i part = first8(d - i);
        __m256 acc = _mm256_setzero_ps();

        for (size_t s = 0; s < n; s++)
            acc = _mm256_fmadd_ps(_mm256_maskload_ps(g + s * d + i, part), _mm256_maskload_ps(x + s * d + i, part),
                                  acc);
        _mm256_maskstore_ps(m + i, part, canon8(_mm256_div_ps(acc, count)));
    }
}

void branch_gate_avx2(const float *k, const float *q, const float *v, float scale, size_t n, size_t d, float *u)
{
    for (size_t s = 0; s < n; s++) {
        __m256 gate = _mm256_set1_ps(branch_gate_of(dot32_avx2(k + s * d, q + s * d, d), scale));

        for (size_t i = 0; i < d; i += 8) {
            __m256i part = first8(d - i);
            _mm256_maskstore_ps(u + s * d + i, part, canon8(_mm256_mul_ps(gate, _mm256_maskload_ps(v + i, part))));
        }
    }
}
