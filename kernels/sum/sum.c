/* The standard float reductions. The number and the order of lanes never follow n, threads or the
 * processor: that would change bits. */
#include "kernels/sum/sum.h"

#include "kernels/cpu.h"
#include "kernels/num.h"

#include <math.h>

/* the halving tree over a power of two of lanes */
static float fold(float *lane, size_t lanes)
{
    for (size_t h = lanes / 2; h; h /= 2)
        for (size_t j = 0; j < h; j++)
            lane[j] += lane[j + h];
    return f32_canon(lane[0]);
}

float sum32_ref(const float *x, size_t n)
{
    float lane[32] = {0};

    for (size_t i = 0; i < n; i++)
        lane[i % 32] += x[i];
    return fold(lane, 32);
}

float dot32_ref(const float *a, const float *b, size_t n)
{
    float lane[32] = {0};

    for (size_t i = 0; i < n; i++)
        lane[i % 32] = fmaf(a[i], b[i], lane[i % 32]);
    return fold(lane, 32);
}

float dot8_ref(const float *a, const float *b, size_t n)
{
    float lane[8] = {0};

    for (size_t i = 0; i < n; i++)
        lane[i % 8] = fmaf(a[i], b[i], lane[i % 8]);
    return fold(lane, 8);
}

float dot4(const float *a, const float *b, size_t n)
{
    float lane[4] = {0};

    for (size_t i = 0; i < n; i++)
        lane[i % 4] = fmaf(a[i], b[i], lane[i % 4]);
    return fold(lane, 4);
}

float sum_chain(const float *x, size_t n)
{
    float acc = 0.0f;

    for (size_t i = 0; i < n; i++)
        acc += x[i];
    return f32_canon(acc);
}

float sum32(const float *x, size_t n)
{
    return cpu_level() >= CPU_AVX2 ? sum32_avx2(x, n) : sum32_ref(x, n);
}

float dot32(const float *a, const float *b, size_t n)
{
    return cpu_level() >= CPU_AVX2 ? dot32_avx2(a, b, n) : dot32_ref(a, b, n);
}

float dot8(const float *a, const float *b, size_t n)
{
    return cpu_level() >= CPU_AVX2 ? dot8_avx2(a, b, n) : dot8_ref(a, b, n);
}
