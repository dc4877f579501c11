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
/* x_i = fl(x_i * f) */
void vec_scale_cuda(float *x, float f, size_t n, cudaStream_t s);
/* x_i = fl(x_i / f) */
void vec_divide_cuda(float *x, float f, size_t n, cudaStream_t s);
/* Log decay of the delta rule, y (rows, heads, each), of x likewise: t = fl(x + dt), dt (heads, each) the same for
 * all rows; bounded: y = fl(bound * sigmoid(fl(-A_h * t))); else fl(A_h * softplus(t)). x may be y. */
void decay_cuda(const float *x, const float *A, const float *dt, unsigned heads, unsigned each, int bounded,
                float bound, float *y, size_t rows, cudaStream_t s);
CUDA_END
