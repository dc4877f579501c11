/* Rule 23's exp, eight at a time as two registers of four doubles: its divisions are most of the
 * work, and two chains hide their latency. */
#include "kernels/logprob/logprob.h"

#include "kernels/func/hostmath_avx2.h"

void logprob_exps_avx2(const float *l, size_t n, float m, double *out)
{
    const __m256d big = _mm256_set1_pd(m), low = _mm256_set1_pd(-700.0);
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m256d x[2], in[2];

        for (int h = 0; h < 2; h++) {
            x[h] = _mm256_sub_pd(_mm256_cvtps_pd(_mm_loadu_ps(l + i + 4 * h)), big);
            in[h] = _mm256_cmp_pd(x[h], low, _CMP_GT_OQ);
            x[h] = _mm256_and_pd(x[h], in[h]); /* the others: exp(0), taken away below */
        }
        h_exp4(x, 2);
        for (int h = 0; h < 2; h++)
            _mm256_storeu_pd(out + i + 4 * h, _mm256_and_pd(x[h], in[h]));
    }
    logprob_exps_ref(l + i, n - i, m, out + i);
}
