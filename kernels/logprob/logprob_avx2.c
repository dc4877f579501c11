/* Rule 23's exp, eight at a time as two registers of four doubles: its divisions are most of the
 * work, and two chains hide their latency. */
#include "kernels/logprob/logprob.h"

#include <immintrin.h>

static inline __m256d scale_of(__m256d n) /* 2^n, n integer, |n| < 1023 */
{
    __m256i k = _mm256_cvtepi32_epi64(_mm256_cvtpd_epi32(n));

    return _mm256_castsi256_pd(
        _mm256_slli_epi64(_mm256_add_epi64(k, _mm256_set1_epi64x(1023)), 52));
}

static inline void exp_two(__m256d x[2])
{
    __m256d n[2], r[2], p[2];

    for (int i = 0; i < 2; i++) {
        n[i] = _mm256_round_pd(_mm256_mul_pd(x[i], _mm256_set1_pd(0x1.71547652b82fep+0)),
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        r[i] = _mm256_fmadd_pd(n[i], _mm256_set1_pd(-0x1.62e42fefa39efp-1), x[i]);
        r[i] = _mm256_fmadd_pd(n[i], _mm256_set1_pd(-0x1.abc9e3b39803fp-56), r[i]);
        p[i] = _mm256_set1_pd(1.0);
    }
    for (int k = 18; k >= 1; k--)
        for (int i = 0; i < 2; i++)
            p[i] =
                _mm256_fmadd_pd(_mm256_div_pd(r[i], _mm256_set1_pd(k)), p[i], _mm256_set1_pd(1.0));
    for (int i = 0; i < 2; i++)
        x[i] = _mm256_mul_pd(p[i], scale_of(n[i]));
}

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
        exp_two(x);
        for (int h = 0; h < 2; h++)
            _mm256_storeu_pd(out + i + 4 * h, _mm256_and_pd(x[h], in[h]));
    }
    logprob_exps_ref(l + i, n - i, m, out + i);
}
