/* Rule 26's order as a key inside a kernel: the larger key comes first. */
#pragma once
#include <stdint.h>

/* a float as an unsigned integer of the same order: NaN lowest, -0 as +0 (order_key) */
static __device__ __forceinline__ uint32_t order_bits(float v)
{
    int b = __float_as_int(__fadd_rn(v, 0.0f));

    if (v != v)
        return 0;
    return (uint32_t)(b ^ ((b >> 31) & 0x7FFFFFFF)) ^ 0x80000000u;
}

static __device__ __forceinline__ unsigned long long order_place(float v, uint32_t i)
{
    return (unsigned long long)order_bits(v) << 32 | (uint32_t)~i;
}
