/* Rule 8 on a card: a warp takes one unit of 256 values or four of 32. Everything but the two
 * divisions and the products is integer, so that no order matters. */
#include "kernels/early.cuh"
#include "kernels/quantise/quantise.cuh"
extern "C" {
#include "kernels/quantise/quantise_cuda.h"
}

enum { WARPS = 4 };

static __global__ void prepare_256(const float *x, size_t ldx, size_t n, uint8_t *out,
                                   size_t stride)
{
    size_t u = blockIdx.x * WARPS + threadIdx.x / 32;

    next_may_start(); /* a product fetches its weights meanwhile */
    if (u < n / 256)
        cu_quantise_256(x + blockIdx.y * ldx + 256 * u, u, n, out + blockIdx.y * stride);
}

static __global__ void prepare_32(const float *x, size_t ldx, size_t n, uint8_t *out,
                                  size_t stride)
{
    size_t u = 4 * (blockIdx.x * WARPS + threadIdx.x / 32);

    next_may_start();
    if (u < n / 32)
        cu_quantise_4x32(x + blockIdx.y * ldx + 32 * u, u, n, out + blockIdx.y * stride);
}

static __global__ void copy(const float *x, size_t ldx, size_t n, uint8_t *out, size_t stride)
{
    size_t i = blockIdx.x * (size_t)(WARPS * 32) + threadIdx.x;

    next_may_start();
    if (i < n)
        ((float *)(out + blockIdx.y * stride))[i] = x[blockIdx.y * ldx + i];
}

extern "C" int act_prepare_cuda(enum act_form form, const float *x, size_t ldx, size_t n,
                                size_t n_vec, void *out, size_t out_stride,
                                struct CUstream_st *stream)
{
    /* values a block takes */
    size_t each = form == ACT_A256 ? 256 * WARPS : form == ACT_A32 ? 128 * WARPS : 32 * WARPS;
    dim3 grid((unsigned)((n + each - 1) / each), (unsigned)n_vec);

    if (!n || !n_vec)
        return 0;
    if (form == ACT_A256)
        prepare_256<<<grid, WARPS * 32, 0, stream>>>(x, ldx, n, (uint8_t *)out, out_stride);
    else if (form == ACT_A32)
        prepare_32<<<grid, WARPS * 32, 0, stream>>>(x, ldx, n, (uint8_t *)out, out_stride);
    else
        copy<<<grid, WARPS * 32, 0, stream>>>(x, ldx, n, (uint8_t *)out, out_stride);
    return cudaGetLastError();
}
