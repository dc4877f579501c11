/* num.h for cards (ARITHMETIC.md rules 1 to 6): exact widening, the stored NaN, unaligned loads.
 * Included by .cu files alone. Operations whose order counts are written with the _rn intrinsics,
 * which no flag can contract. */
#pragma once
#include <cuda_fp16.h>
#include <stdint.h>

/* a NaN as it is stored (rule 4) */
static __device__ __forceinline__ float cu_canon(float f)
{
    return f == f ? f : __uint_as_float(0x7FC00000u);
}
static __device__ __forceinline__ float cu_f16(uint16_t bits)
{
    return __half2float(__ushort_as_half(bits));
}
static __device__ __forceinline__ float cu_bf16(uint16_t bits)
{
    return __uint_as_float((uint32_t)bits << 16);
}
/* |v| < 2^22, nearest even (rule 6) */
static __device__ __forceinline__ int cu_to_int(float v)
{
    return __float2int_rn(v);
}
