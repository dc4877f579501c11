/* One party makes the whole sum of a token, by place: who made a row, and when, cannot matter. */
#include "kernels/moe/moe.h"

#include "kernels/cpu.h"
#include "kernels/num.h"

#include <math.h>

void moe_sum_ref(const float *w, const float *const *rows, uint32_t k, float *acc, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float a = 0.0f;

        for (uint32_t p = 0; p < k; p++)
            a = fmaf(w[p], rows[p][i], a);
        acc[i] = f32_canon(a);
    }
}

void vec_add_ref(float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = f32_canon(x[i] + y[i]);
}

void vec_fma1_ref(float a, const float *y, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = f32_canon(fmaf(a, y[i], x[i]));
}

void vec_mul_ref(float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = f32_canon(x[i] * y[i]);
}

void moe_sum(const float *w, const float *const *rows, uint32_t k, float *acc, size_t n)
{
    cpu_level() >= CPU_AVX2 ? moe_sum_avx2(w, rows, k, acc, n) : moe_sum_ref(w, rows, k, acc, n);
}

void vec_add(float *x, const float *y, size_t n)
{
    cpu_level() >= CPU_AVX2 ? vec_add_avx2(x, y, n) : vec_add_ref(x, y, n);
}

void vec_fma1(float a, const float *y, float *x, size_t n)
{
    cpu_level() >= CPU_AVX2 ? vec_fma1_avx2(a, y, x, n) : vec_fma1_ref(a, y, x, n);
}

void vec_mul(float *x, const float *y, size_t n)
{
    cpu_level() >= CPU_AVX2 ? vec_mul_avx2(x, y, n) : vec_mul_ref(x, y, n);
}
