/* moe.h on a card, for the rows of a batch. Launches on a stream, no allocation, capturable. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "kernels/stream.h"

CUDA_BEGIN
/* acc (n_tokens, n), ld floats from row to row = CHAIN over places p < k of fma(w[t * k + p], row,
 * acc), row = rows + (t * k + p) * n: the experts' rows in this card's memory, by place (rule 28).
 */
void moe_sum_cuda(const float *w, const float *rows, unsigned k, float *acc, size_t ld, size_t n,
                  unsigned n_tokens, cudaStream_t s);
/* The same where row (t, p) begins at row_at[t * k + p] (device memory), in mapped host memory or
 * another card's: read past L1, with relaxed loads of system scope. The caller has waited for the
 * rows' stamps in a node before (gpu-worker/handoff.cuh). Rows are aligned to 16 bytes where n % 4
 * == 0. */
void moe_sum_far_cuda(const float *w, const float *const *row_at, unsigned k, float *acc, size_t ld,
                      size_t n, unsigned n_tokens, cudaStream_t s);
/* x_i = fl(x_i + y_i), n values */
void vec_add_cuda(float *x, const float *y, size_t n, cudaStream_t s);
/* x_i = fma(*a, y_i, x_i) for each row of n values, a by row: gated shared expert */
void vec_fma1_cuda(const float *a, const float *y, float *x, size_t n, unsigned rows,
                   cudaStream_t s);
/* the same to each of `each` vectors beside each other in a row of x: x (rows, each, n), y (rows, n), a (rows, each) */
void vec_fma1_each_cuda(const float *a, const float *y, float *x, size_t n, unsigned each, unsigned rows,
                        cudaStream_t s);
/* x_i = fl(x_i * y_i) */
void vec_mul_cuda(float *x, const float *y, size_t n, cudaStream_t s);
CUDA_END
