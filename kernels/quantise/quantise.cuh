/* Rule 8 by one warp, one unit at a time; used by the launcher and by kernels that quantise what
 * they just made. */
#pragma once
#include "kernels/num.cuh"
#include "kernels/type/type.h"

static __host__ __device__ __forceinline__ size_t cu_act_d_at(size_t n)
{
    return (n + 63) & ~(size_t)63;
}
static __host__ __device__ __forceinline__ size_t cu_act_sum_at(size_t n, int unit)
{
    return cu_act_d_at(n) + ((n / unit * 4 + 63) & ~(size_t)63);
}

/* Four values to bytes, and their sum. */
static __device__ __forceinline__ uint32_t cu_quantise4(float4 x, float r, int *sum)
{
    int a = cu_to_int(__fmul_rn(x.x, r)), b = cu_to_int(__fmul_rn(x.y, r));
    int c = cu_to_int(__fmul_rn(x.z, r)), d = cu_to_int(__fmul_rn(x.w, r));

    *sum = (a + b) + (c + d);
    return (a & 255) | (b & 255) << 8 | (c & 255) << 16 | (uint32_t)d << 24;
}
static __device__ __forceinline__ uint32_t cu_max_bits(float4 x)
{
    uint32_t a = __float_as_uint(x.x) & 0x7FFFFFFF, b = __float_as_uint(x.y) & 0x7FFFFFFF;
    uint32_t c = __float_as_uint(x.z) & 0x7FFFFFFF, d = __float_as_uint(x.w) & 0x7FFFFFFF;

    return max(max(a, b), max(c, d));
}

/* 256 values x by the whole warp: thread l takes the values 4l.. and 128 + 4l.., whose bytes are lo[l] and hi[l];
 * sums of sixteen and d, of which sum may be NULL. The maximum and the sums are integers: their order is free. */
static __device__ __forceinline__ void cu_quantise_256_to(const float *x, uint32_t *lo, uint32_t *hi, int16_t *sum,
                                                          float *to_d)
{
    int lane = threadIdx.x & 31, s0, s1;
    float4 a = ((const float4 *)x)[lane], b = ((const float4 *)x)[lane + 32];
    uint32_t bits = max(cu_max_bits(a), cu_max_bits(b)), qa = 0, qb = 0;
    float d = 0;

    for (int h = 16; h; h /= 2)
        bits = max(bits, __shfl_xor_sync(~0u, bits, h));
    s0 = s1 = 0;
    if (bits >= 0x7F800000u) {
        d = __uint_as_float(0x7FC00000u);
    } else if (bits >= 0x0D800000u) { /* 2^-100 */
        float m = __uint_as_float(bits), r = __fdiv_rn(127.0f, m);
        d = __fdiv_rn(m, 127.0f);
        qa = cu_quantise4(a, r, &s0);
        qb = cu_quantise4(b, r, &s1);
    }
    lo[lane] = qa;
    hi[lane] = qb;
    if (sum) {
        for (int h = 1; h < 4; h *= 2) {
            s0 += __shfl_xor_sync(~0u, s0, h);
            s1 += __shfl_xor_sync(~0u, s1, h);
        }
        if (lane % 4 == 0) {
            sum[lane / 4] = (int16_t)s0;
            sum[8 + lane / 4] = (int16_t)s1;
        }
    }
    if (lane == 0)
        *to_d = d;
}
/* the same, at unit u of a vector of n values */
static __device__ __forceinline__ void cu_quantise_256(const float *x, size_t u, size_t n, uint8_t *out)
{
    uint32_t *q = (uint32_t *)(out + 256 * u);

    cu_quantise_256_to(x, q, q + 32, (int16_t *)(out + cu_act_sum_at(n, 256)) + 16 * u, (float *)(out + cu_act_d_at(n)) + u);
}

/* Four units of 32 values at u .. u + 3, eight threads each; units from n / 32 on are left alone. */
static __device__ __forceinline__ void cu_quantise_4x32(const float *x, size_t u, size_t n,
                                                        uint8_t *out)
{
    int lane = threadIdx.x & 31, s = 0;
    size_t unit = u + lane / 8;
    bool in = unit < n / 32;
    float4 a = in ? ((const float4 *)x)[lane] : make_float4(0, 0, 0, 0);
    uint32_t bits = cu_max_bits(a), q = 0;
    float d = 0;

    for (int h = 4; h; h /= 2)
        bits = max(bits, __shfl_xor_sync(~0u, bits, h));
    if (bits >= 0x7F800000u) {
        d = __uint_as_float(0x7FC00000u);
    } else if (bits >= 0x0D800000u) {
        float m = __uint_as_float(bits);
        d = __fdiv_rn(m, 127.0f);
        q = cu_quantise4(a, __fdiv_rn(127.0f, m), &s);
    }
    for (int h = 4; h; h /= 2)
        s += __shfl_xor_sync(~0u, s, h);
    if (!in)
        return;
    ((uint32_t *)(out + 32 * u))[lane] = q;
    if (lane % 8 == 0) {
        ((float *)(out + cu_act_d_at(n)))[unit] = d;
        ((int32_t *)(out + cu_act_sum_at(n, 32)))[unit] = s;
    }
}
