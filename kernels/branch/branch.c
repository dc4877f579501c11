/* Mixing by gates: a gate for every value of every stream on the way in, one for a stream where a looked-up
 * value comes in. */
#include "kernels/branch/branch.h"

#include "kernels/cpu.h"
#include "kernels/func/func.h"
#include "kernels/num.h"
#include "kernels/sum/sum.h"

#include <math.h>

#define LEAST 1e-6f

void branch_mean_ref(const float *g, const float *x, size_t n, size_t d, float *m)
{
    for (size_t i = 0; i < d; i++) {
        float acc = 0.0f;

        for (size_t s = 0; s < n; s++)
            acc = fmaf(g[s * d + i], x[s * d + i], acc);
        m[i] = f32_canon(acc / (float)n);
    }
}

float branch_gate_of(float product, float scale)
{
    float a = (product + 0.0f) * scale, size = fabsf(a);
    float z = a == 0 ? 0 : copysignf(sqrtf(size < LEAST ? LEAST : size), a);

    return f_sigmoid(z);
}

void branch_gate_ref(const float *k, const float *q, const float *v, float scale, size_t n, size_t d, float *u)
{
    for (size_t s = 0; s < n; s++) {
        float gate = branch_gate_of(dot32_ref(k + s * d, q + s * d, d), scale);

        for (size_t i = 0; i < d; i++)
            u[s * d + i] = f32_canon(gate * v[i]);
    }
}

void branch_mean(const float *g, const float *x, size_t n, size_t d, float *m)
{
    cpu_level() >= CPU_AVX2 ? branch_mean_avx2(g, x, n, d, m) : branch_mean_ref(g, x, n, d, m);
}

void branch_gate(const float *k, const float *q, const float *v, float scale, size_t n, size_t d, float *u)
{
    cpu_level() >= CPU_AVX2 ? branch_gate_avx2(k, q, v, scale, n, d, u) : branch_gate_ref(k, q, v, scale, n, d, u);
}
