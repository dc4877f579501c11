/* func.h on a card: launches on a stream, no allocation, capturable. x, y: n floats in device
 * memory, may be the same array. */
#pragma once
#include <stddef.h>

#include "kernels/stream.h"

CUDA_BEGIN
void vec_exp_cuda(const float *x, float *y, size_t n, cudaStream_t s);
void vec_softplus_cuda(const float *x, float *y, size_t n, cudaStream_t s);
void vec_sigmoid_cuda(const float *x, float *y, size_t n, cudaStream_t s);
void vec_silu_cuda(const float *x, float *y, size_t n, cudaStream_t s);
void vec_tanh_cuda(const float *x, float *y, size_t n, cudaStream_t s);
/* h_i = fl(silu(g_i) * u_i) after the clamps; limit <= 0: none */
void clamp_swiglu_cuda(const float *g, const float *u, float limit, float *h, size_t n,
                       cudaStream_t s);
CUDA_END
