/* hyper.h on a card, for the tokens of a batch. Launches on a stream, no allocation, capturable.
 * Tokens' rows follow each other without gaps: m (2n + n * n), mix (pre n, post n, C (n, n) side by
 * side), X (n, d), x, y (d). All in device memory. */
#pragma once
#include <stddef.h>

#include "kernels/stream.h"

CUDA_BEGIN
#include "kernels/hyper/hyper.h"

void hyper_mix_cuda(const float *m, const float *scale, const float *base, unsigned n, float eps,
                    int iterations, float *mix, unsigned n_tokens, cudaStream_t s);
void hyper_collapse_cuda(const float *mix, const float *X, unsigned n, size_t d, float *x,
                         unsigned n_tokens, cudaStream_t s);
void hyper_expand_cuda(const float *mix, const float *y, float *X, unsigned n, size_t d,
                       unsigned n_tokens, cudaStream_t s);
void hyper_mean_cuda(const float *X, unsigned n, size_t d, float *x, unsigned n_tokens,
                     cudaStream_t s);
CUDA_END
