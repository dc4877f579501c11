/* Softmax over one vector. Which of several maxima is taken, and what the maximum of NaN is, cannot
 * be seen in the result (rule 5). */
#include "kernels/softmax/softmax.h"

#include "kernels/cpu.h"
#include "kernels/func/func.h"
#include "kernels/num.h"
#include "kernels/sum/sum.h"

void softmax_ref(const float *x, float *p, size_t n) /* rule 25 */
{
    float m = x[0], l;

    for (size_t i = 1; i < n; i++)
        m = x[i] > m ? x[i] : m;
    for (size_t i = 0; i < n; i++)
        p[i] = f_exp(x[i] - m);
    l = sum32_ref(p, n);
    for (size_t i = 0; i < n; i++)
        p[i] = f32_canon(p[i] / l);
}

void softmax(const float *x, float *p, size_t n)
{
    cpu_level() >= CPU_AVX2 ? softmax_avx2(x, p, n) : softmax_ref(x, p, n);
}
