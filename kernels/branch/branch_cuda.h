/* branch.h on a card, for the tokens of a batch. Launches on a stream, no allocation, capturable. Tokens' rows follow
 * each other without gaps. All in device memory. */
#pragma once
#include <stddef.h>

#include "kernels/stream.h"

CUDA_BEGIN
#include "kernels/branch/branch.h"

/* g, x (n_tokens, n, d), m (n_tokens, d) */
void branch_mean_cuda(const float *g, const float *x, unsigned n, size_t d, float *m, unsigned n_tokens, cudaStream_t s);
/* k, q, u (n_tokens, n, d), v (n_tokens, d) */
void branch_gate_cuda(const float *k, const float *q, const float *v, float scale, unsigned n, size_t d, float *u,
                      unsigned n_tokens, cudaStream_t s);
CUDA_END
