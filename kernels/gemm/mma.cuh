/* int8 tensor cores: 16 rows times 8 vectors, over 32 or 16 values. Exact in int32.
 *
 * Of a tile a thread (g = lane / 4, t = lane % 4) holds rows g and g + 8 of A and vector g of B, at
 * the values 4t.. and 16 + 4t..; of the result rows g (c[0], c[1]) and g + 8 (c[2], c[3]) for the
 * vectors 2t and 2t + 1. Cards before sm_80 have a smaller instruction, of which it takes four. */
#pragma once
#include <stdint.h>

/* four 8 x 16 byte matrices from shared memory, whose rows begin at the threads' addresses */
static __device__ __forceinline__ void load_matrices(const uint8_t *row, uint32_t r[4])
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row)));
}
static __device__ __forceinline__ void load_matrices2(const uint8_t *row, uint32_t r[2])
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"((uint32_t)__cvta_generic_to_shared(row)));
}

#if __CUDA_ARCH__ < 800
static __device__ __forceinline__ void mma8(int *c, uint32_t a, uint32_t b)
{
    asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+r"(c[0]), "+r"(c[1])
                 : "r"(a), "r"(b));
}
#endif

/* c = start + A x B over 16 values: a of rows g, g + 8; b */
static __device__ __forceinline__ void mma16(int c[4], uint32_t a0, uint32_t a1, uint32_t b,
                                             int start)
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
                 "{%7,%7,%7,%7};"
                 : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
                 : "r"(a0), "r"(a1), "r"(b), "r"(start));
#else
    c[0] = c[1] = c[2] = c[3] = start;
    mma8(c, a0, b);
    mma8(c + 2, a1, b);
#endif
}
/* over 32 values: a as load_matrices gives them, b of both halves */
static __device__ __forceinline__ void mma32(int c[4], const uint32_t a[4], uint32_t b0,
                                             uint32_t b1, int start)
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%10,%10,%10,%10};"
                 : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(start));
#else
    c[0] = c[1] = c[2] = c[3] = start;
    mma8(c, a[0], b0);
    mma8(c + 2, a[1], b0);
    mma8(c, a[2], b1);
    mma8(c + 2, a[3], b1);
#endif
}
/* c += A x B over 32 values: a0, a1 of rows g and g + 8 at the values 4t.., a2, a3 at 16 + 4t.. */
static __device__ __forceinline__ void mma32_add(int c[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                                 uint32_t a3, uint32_t b0, uint32_t b1)
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#else
    mma8(c, a0, b0);
    mma8(c + 2, a1, b0);
    mma8(c, a2, b1);
    mma8(c + 2, a3, b1);
#endif
}
