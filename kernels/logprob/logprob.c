/* The exponentials may be made in any way and in pieces; the sum is one chain. */
#include "kernels/logprob/logprob.h"

#include "kernels/cpu.h"
#include "kernels/func/hostmath.h"

#include <math.h>

void logprob_exps_ref(const float *l, size_t n, float m, double *out)
{
    for (size_t i = 0; i < n; i++) {
        double d = (double)l[i] - (double)m;

        out[i] = d > -700.0 ? h_exp(d) : 0.0; /* a NaN is not above */
    }
}

double logprob_sum(const float *l, size_t n, float *m)
{
    double e[256], sum = 0.0;

    *m = -INFINITY;
    for (size_t i = 0; i < n; i++)
        *m = l[i] > *m ? l[i] : *m;
    if (!isfinite(*m))
        return NAN;
    for (size_t i = 0; i < n; i += 256) {
        size_t count = n - i < 256 ? n - i : 256;

        cpu_level() >= CPU_AVX2 ? logprob_exps_avx2(l + i, count, *m, e)
                                : logprob_exps_ref(l + i, count, *m, e);
        for (size_t j = 0; j < count; j++)
            sum += e[j];
    }
    return sum;
}

double logprob_of(float l_t, double sum, float m)
{
    return isfinite(m) ? ((double)l_t - (double)m) - h_ln(sum) : (double)NAN;
}

double logprob(const float *l, size_t n, uint32_t t)
{
    float m;
    double sum = logprob_sum(l, n, &m);

    return logprob_of(l[t], sum, m);
}
