/* A place's part of the sum over a token's experts (ARITHMETIC.md rule 28), for one value or four
 * neighbours, and loads of rows that others wrote. Included by .cu files alone. */
#pragma once
#include "kernels/num.cuh"

/* never through L1, whose lines could be older than the stamp that was waited for */
static __device__ __forceinline__ float load_far(const float *p)
{
    float v;

    asm volatile("ld.relaxed.sys.global.f32 %0, [%1];" : "=f"(v) : "l"(p) : "memory");
    return v;
}
static __device__ __forceinline__ float4 load_far(const float4 *p)
{
    float4 v;

    asm volatile("ld.relaxed.sys.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}
static __device__ __forceinline__ void add_row(float &a, float w, float y)
{
    a = __fmaf_rn(w, y, a);
}
static __device__ __forceinline__ void add_row(float4 &a, float w, float4 y)
{
    add_row(a.x, w, y.x);
    add_row(a.y, w, y.y);
    add_row(a.z, w, y.z);
    add_row(a.w, w, y.w);
}
static __device__ __forceinline__ void store_sum(float *acc, float a)
{
    *acc = cu_canon(a);
}
static __device__ __forceinline__ void store_sum(float *acc, float4 a)
{
    store_sum(acc, a.x);
    store_sum(acc + 1, a.y);
    store_sum(acc + 2, a.z);
    store_sum(acc + 3, a.w);
}
