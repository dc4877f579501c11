/* index.h on a card, for many pools or queries. Launches on a stream, no allocation, capturable.
 * All in device memory. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "kernels/stream.h"

CUDA_BEGIN
/* Pool i has the `count` rows from row first[i] on of key (and gate), rows of d floats, ld apart;
 * its pooled key goes to row i of pk (n_pools, d). gate NULL: the mean; else as pool_gated, bias
 * (count, d) or NULL. */
void pools_cuda(const float *key, const float *gate, size_t ld, const float *bias,
                const uint32_t *first, unsigned count, size_t d, float *pk, unsigned n_pools,
                cudaStream_t s);
/* score row t, lds floats apart, [b] for b < n_pools[t] (device): as index_scores of token t's q
 * (n_tokens, n_heads, d) and w (n_tokens, n_heads) or NULL; pool b's key at pk + b * stride floats.
 * Blocks take the pools in turn, so that the grid serves every length. */
void index_scores_cuda(const float *q, const float *w, const float *pk, size_t stride,
                       const uint32_t *n_pools, unsigned n_heads, unsigned d, float scale,
                       float *score, size_t lds, unsigned n_tokens, cudaStream_t s);
CUDA_END
