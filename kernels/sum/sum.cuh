/* The orders of float sums (ARITHMETIC.md rule 7) inside a kernel: a warp is SUM32, its lane is the
 * rule's lane. Results are not canonical where they are NaN. */
#pragma once
#include "kernels/num.cuh"

enum { WARP = 32 };
#define WARP_ALL 0xFFFFFFFFu

/* The halving tree over the warp's 32 lanes; lane 0's value is the sum, and every lane gets it. */
static __device__ __forceinline__ float cu_fold32(float lane)
{
    for (int h = 16; h; h /= 2)
        lane = __fadd_rn(lane, __shfl_down_sync(WARP_ALL, lane, h));
    return __shfl_sync(WARP_ALL, lane, 0);
}

/* SUM32 of squares of x[0 ... n-1] by one whole warp */
static __device__ __forceinline__ float cu_squares32(const float *x, size_t n)
{
    float acc = 0.0f;

#pragma unroll 8
    for (size_t i = threadIdx.x % WARP; i < n; i += WARP)
        acc = __fmaf_rn(x[i], x[i], acc);
    return cu_fold32(acc);
}

/* SUM32 of x[0 ... n-1] by one whole warp */
static __device__ __forceinline__ float cu_sum32(const float *x, size_t n)
{
    float acc = 0.0f;

#pragma unroll 8
    for (size_t i = threadIdx.x % WARP; i < n; i += WARP)
        acc = __fadd_rn(acc, x[i]);
    return cu_fold32(acc);
}

/* LANE8 and LANE4: the fold of their lanes */
static __device__ __forceinline__ float cu_fold8(const float l[8])
{
    return __fadd_rn(__fadd_rn(__fadd_rn(l[0], l[4]), __fadd_rn(l[2], l[6])),
                     __fadd_rn(__fadd_rn(l[1], l[5]), __fadd_rn(l[3], l[7])));
}
static __device__ __forceinline__ float cu_fold4(const float l[4])
{
    return __fadd_rn(__fadd_rn(l[0], l[2]), __fadd_rn(l[1], l[3]));
}

/* the largest of the warp's values; which of several zeros or NaN is open (rule 5: softmax alone)
 */
static __device__ __forceinline__ float cu_warp_max(float v)
{
    for (int h = 16; h; h /= 2) {
        float o = __shfl_xor_sync(WARP_ALL, v, h);
        v = o > v ? o : v;
    }
    return v;
}
