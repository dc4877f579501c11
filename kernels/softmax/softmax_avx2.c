/* Three passes: maximum, exponentials with their sum, division. */
#include "kernels/softmax/softmax_avx2.h"
#include "kernels/softmax/softmax.h"

void softmax_avx2(const float *x, float *p, size_t n)
{
    float sum = exp_sum_avx2(x, max_avx2(x, n), p, n);
    __m256 l = _mm256_set1_ps(sum);
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(p + i, canon8(_mm256_div_ps(_mm256_loadu_ps(p + i), l)));
    if (i < n) {
        __m256i part = first8(n - i);
        _mm256_maskstore_ps(p + i, part, canon8(_mm256_div_ps(_mm256_maskload_ps(p + i, part), l)));
    }
}
