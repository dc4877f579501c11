/* index.h on a card, for many pools or queries. Launches on a stream, no allocation, capturable.
 * All in device memory. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "kernels/conv/conv_cuda.h" /* tails */
#include "kernels/stream.h"

/* Pools that end with a token of the batch: keys and gates of its members from key and gate (n_tokens, d) and, of
 * earlier tokens, from the tail's version that is read, d floats of key and d of gate in a row (tails.n = 2 d).
 * bias (count, d) or NULL. Pool b of slot s goes to pools + s * seq_floats + b * d. */
struct pools_runs_cuda {
    struct tails_cuda tails;
    const float *key, *gate, *bias;
    float *pools;
    size_t seq_floats;
    unsigned count, d, n_tokens;
};
/* Likewise without gates (tails.n = d): the mean of the members' keys, normed with weights norm, then its first 2 *
 * half values rotated as the pool's first position; cos, sin: (positions, half). */
struct mean_runs_cuda {
    struct tails_cuda tails;
    const float *key, *norm, *cos, *sin;
    float *pools, eps;
    size_t seq_floats;
    unsigned count, d, half, n_tokens;
};
/* The key list of each token at pos of slot seq: how many, then the positions of the first `most` pools in the order
 * of their scores (rule 26) and of the open pool, ascending; INDEX_LIST_ALL alone where there are no more pools than
 * `most`. pools as above. q (n_tokens, n_heads, d), w (n_tokens, n_heads) or NULL. list: rows of ldl numbers, at
 * least 1 + most * count + count - 1. score: scratch, (INDEX_LIST_TOKENS, lds) floats, lds the most pools. */
enum { INDEX_LIST_TOKENS = 8 };
#define INDEX_LIST_ALL UINT32_MAX
struct index_lists_cuda {
    const float *q, *w, *pools;
    size_t seq_floats;
    const uint32_t *pos, *seq;
    unsigned n_heads, d, count, most, n_tokens;
    float scale, *score;
    size_t lds;
    uint32_t *list;
    size_t ldl;
};

CUDA_BEGIN
void pools_runs_cuda(const struct pools_runs_cuda *p, cudaStream_t s);
void mean_runs_cuda(const struct mean_runs_cuda *p, cudaStream_t s);
void index_lists_cuda(const struct index_lists_cuda *x, cudaStream_t s);
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
