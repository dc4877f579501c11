/* The functions of ARITHMETIC.md rules 17 to 20 and 5 on a card, one value a thread: the operations
 * of func.c in the same order. Results are not canonical where a NaN leaves: rule 4 is for whoever
 * stores (cu_canon). */
#pragma once
#include "kernels/num.cuh"

static __device__ __forceinline__ float cu_two_to(int k) /* 2^k for -126 <= k <= 127 */
{
    return __int_as_float((k + 127) << 23);
}

/* 17. The argument is clamped so that nothing below is undefined; the special results come last. */
static __device__ __forceinline__ float cu_exp(float x)
{
    float c = x > 89.0f ? 89.0f : x < -104.0f ? -104.0f : x;
    float n = __fsub_rn(__fmaf_rn(c, 0x1.715476p+0f, 0x1.8p+23f), 0x1.8p+23f);
    float r = __fmaf_rn(n, -0x1.7f7d1cp-20f, __fmaf_rn(n, -0x1.62e4p-1f, c));
    float p = __fmaf_rn(0x1.6a234ep-10f, r, 0x1.123a6cp-7f), s, e, y;
    int k, k1;

    p = __fmaf_rn(p, r, 0x1.5558f4p-5f);
    p = __fmaf_rn(p, r, 0x1.55549p-3f);
    p = __fmaf_rn(p, r, 0x1.fffffcp-2f);
    s = __fadd_rn(1.0f, r);
    e = __fsub_rn(r, __fsub_rn(s, 1.0f)); /* what the sum lost */
    y = __fadd_rn(s, __fmaf_rn(__fmul_rn(r, r), p, e));
    k = x == x ? (int)n : 0;
    k1 = k >> 1;
    y = __fmul_rn(__fmul_rn(y, cu_two_to(k1)), cu_two_to(k - k1));
    return x != x ? x : x > 89.0f ? __int_as_float(0x7F800000) : x < -104.0f ? 0.0f : y;
}

static __device__ __forceinline__ float cu_log1p(float u) /* 18: 0 <= u <= 1 */
{
    float s = __fdiv_rn(u, __fadd_rn(2.0f, u)), z = __fmul_rn(s, s), h, v;

    h = __fmaf_rn(0x1.f1c244p-4f, z, 0x1.b6d1e6p-4f);
    h = __fmaf_rn(h, z, 0x1.2509a4p-3f);
    h = __fmaf_rn(h, z, 0x1.9996a6p-3f);
    h = __fmaf_rn(h, z, 0x1.555558p-2f);
    v = __fsub_rn(u, __fmul_rn(__fadd_rn(z, z), h));
    return __fmaf_rn(-s, v, u);
}

static __device__ __forceinline__ float cu_softplus(float x) /* 18 */
{
    return __fadd_rn(x > 0.0f ? x : 0.0f, cu_log1p(cu_exp(-fabsf(x))));
}

static __device__ __forceinline__ float cu_sigmoid(float x) /* 19 */
{
    float e = cu_exp(-fabsf(x));

    return __fdiv_rn(x >= 0.0f ? 1.0f : e, __fadd_rn(1.0f, e));
}

static __device__ __forceinline__ float cu_silu(float x) /* 19 */
{
    float e = cu_exp(-fabsf(x));

    return __fdiv_rn(x >= 0.0f ? x : __fmul_rn(x, e), __fadd_rn(1.0f, e));
}

static __device__ __forceinline__ float cu_tanh(float x) /* 20 */
{
    float a = fabsf(x), z = __fmul_rn(x, x), p, e;

    if (a < 0.625f) {
        p = __fmaf_rn(-0x1.76982cp-8f, z, 0x1.525296p-6f);
        p = __fmaf_rn(p, z, -0x1.b843aap-5f);
        p = __fmaf_rn(p, z, 0x1.110764p-3f);
        p = __fmaf_rn(p, z, -0x1.555534p-2f);
        return __fmaf_rn(__fmul_rn(x, z), p, x);
    }
    e = __fadd_rn(cu_exp(__fadd_rn(a, a)), 1.0f);
    return copysignf(__fsub_rn(1.0f, __fdiv_rn(2.0f, e)), x);
}

static __device__ __forceinline__ float cu_relu(float x) /* 5: NaN stays NaN */
{
    return x < 0.0f ? 0.0f : x;
}
static __device__ __forceinline__ float cu_clamp(float x, float lo, float hi) /* 5 */
{
    return x < lo ? lo : x > hi ? hi : x;
}
/* 19, an expert's activation; limit <= 0: no clamp */
static __device__ __forceinline__ float cu_swiglu(float g, float u, float limit)
{
    if (limit > 0.0f) {
        g = g > limit ? limit : g;
        u = cu_clamp(u, -limit, limit);
    }
    return cu_canon(__fmul_rn(cu_silu(g), u));
}
