/* exp, log1p, softplus, sigmoid, silu, tanh as sequences of binary32 operations. No libm function
 * but fmaf may appear here: its results would differ from machine to machine. */
#include "kernels/func/func.h"

#include "kernels/cpu.h"
#include "kernels/num.h"

#include <math.h>

static float two_to(int k) /* 2^k for -126 <= k <= 127 */
{
    return f32_from_bits((uint32_t)(k + 127) << 23);
}

float f_exp(float x) /* rule 17 */
{
    float n, r, p, s, e, y;
    int k, k1, k2;

    if (x != x)
        return f32_canon(x);
    if (x > 89.0f)
        return INFINITY;
    if (x < -104.0f)
        return 0.0f;
    n = fmaf(x, 0x1.715476p+0f, 0x1.8p+23f) - 0x1.8p+23f; /* nearest integer of x / ln 2 */
    r = fmaf(n, -0x1.62e4p-1f, x);
    r = fmaf(n, -0x1.7f7d1cp-20f, r);
    p = 0x1.6a234ep-10f;
    p = fmaf(p, r, 0x1.123a6cp-7f);
    p = fmaf(p, r, 0x1.5558f4p-5f);
    p = fmaf(p, r, 0x1.55549p-3f);
    p = fmaf(p, r, 0x1.fffffcp-2f);
    s = 1.0f + r;
    e = r - (s - 1.0f); /* what the sum lost */
    y = s + fmaf(r * r, p, e);
    k = (int)n;
    k1 = k >> 1;
    k2 = k - k1;
    return (y * two_to(k1)) * two_to(k2); /* the last product overflows or turns subnormal */
}

float f_log1p(float u) /* rule 18 */
{
    float s = u / (2.0f + u), z = s * s, h, v;

    h = 0x1.f1c244p-4f;
    h = fmaf(h, z, 0x1.b6d1e6p-4f);
    h = fmaf(h, z, 0x1.2509a4p-3f);
    h = fmaf(h, z, 0x1.9996a6p-3f);
    h = fmaf(h, z, 0x1.555558p-2f);
    v = u - (z + z) * h;
    return f32_canon(fmaf(-s, v, u));
}

float f_softplus(float x) /* rule 18 */
{
    return f32_canon((x > 0.0f ? x : 0.0f) + f_log1p(f_exp(-fabsf(x))));
}

float f_sigmoid(float x) /* rule 19 */
{
    float e = f_exp(-fabsf(x)), d = 1.0f + e;

    return f32_canon((x >= 0.0f ? 1.0f : e) / d);
}

float f_silu(float x) /* rule 19 */
{
    float e = f_exp(-fabsf(x)), d = 1.0f + e;

    return f32_canon((x >= 0.0f ? x : x * e) / d);
}

float f_tanh(float x) /* rule 20 */
{
    float a = fabsf(x);

    if (a < 0.625f) {
        float z = x * x, p = -0x1.76982cp-8f;

        p = fmaf(p, z, 0x1.525296p-6f);
        p = fmaf(p, z, -0x1.b843aap-5f);
        p = fmaf(p, z, 0x1.110764p-3f);
        p = fmaf(p, z, -0x1.555534p-2f);
        return fmaf(x * z, p, x);
    }
    return f32_canon(copysignf(1.0f - 2.0f / (f_exp(a + a) + 1.0f), x));
}

float f_relu(float x) /* rule 5 */
{
    return f32_canon(x < 0.0f ? 0.0f : x);
}

float f_clamp(float x, float lo, float hi) /* rule 5 */
{
    return f32_canon(x < lo ? lo : x > hi ? hi : x);
}

void vec_exp_ref(const float *x, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = f_exp(x[i]);
}

void vec_softplus_ref(const float *x, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = f_softplus(x[i]);
}

void vec_sigmoid_ref(const float *x, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = f_sigmoid(x[i]);
}

void vec_silu_ref(const float *x, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = f_silu(x[i]);
}

void vec_tanh_ref(const float *x, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = f_tanh(x[i]);
}

void clamp_swiglu_ref(const float *g, const float *u, float limit, float *h, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float a = limit > 0.0f ? f_clamp(g[i], -INFINITY, limit) : g[i];
        float b = limit > 0.0f ? f_clamp(u[i], -limit, limit) : u[i];

        h[i] = f32_canon(f_silu(a) * b);
    }
}

void vec_exp(const float *x, float *y, size_t n)
{
    switch (cpu_level()) {
    case CPU_VBMI:
    case CPU_AVX512:
        vec_exp_avx512(x, y, n);
        break;
    case CPU_AVX2:
        vec_exp_avx2(x, y, n);
        break;
    default:
        vec_exp_ref(x, y, n);
    }
}

void vec_softplus(const float *x, float *y, size_t n)
{
    cpu_level() >= CPU_AVX2 ? vec_softplus_avx2(x, y, n) : vec_softplus_ref(x, y, n);
}

void vec_sigmoid(const float *x, float *y, size_t n)
{
    cpu_level() >= CPU_AVX2 ? vec_sigmoid_avx2(x, y, n) : vec_sigmoid_ref(x, y, n);
}

void vec_silu(const float *x, float *y, size_t n)
{
    cpu_level() >= CPU_AVX2 ? vec_silu_avx2(x, y, n) : vec_silu_ref(x, y, n);
}

void vec_tanh(const float *x, float *y, size_t n)
{
    cpu_level() >= CPU_AVX2 ? vec_tanh_avx2(x, y, n) : vec_tanh_ref(x, y, n);
}

void clamp_swiglu(const float *g, const float *u, float limit, float *h, size_t n)
{
    cpu_level() >= CPU_AVX2 ? clamp_swiglu_avx2(g, u, limit, h, n)
                            : clamp_swiglu_ref(g, u, limit, h, n);
}

void silu_mul(const float *g, const float *u, float *h, size_t n)
{
    clamp_swiglu(g, u, 0.0f, h, n);
}
