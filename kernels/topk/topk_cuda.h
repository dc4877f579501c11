/* topk.h on a card: the routers of a batch, and the arg-max of rows of logits (ARITHMETIC.md rules
 * 25, 26, 37). Launches on a stream, no allocation, capturable. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "kernels/stream.h"

enum {
    ROUTER_CUDA_EXPERTS = 2048, /* most of a launch */
    ARGMAX_CUDA_BLOCKS = 64,    /* of a row */
};
#define ARGMAX_NONE UINT32_MAX

struct router_cuda {
    const float *logits;     /* (n_tokens, n) */
    const float *bias;       /* n, or NULL; sigmoid alone */
    float *scores;           /* (n_tokens, n): probabilities, or sigmoids; not logits */
    uint32_t *idx;           /* (n_tokens, k): the first k of the order */
    float *w;                /* (n_tokens, k) */
    unsigned n, k, n_tokens; /* k <= n <= ROUTER_CUDA_EXPERTS */
    int normalise;
    float floor, plus, scale; /* as router_weights */
};

CUDA_BEGIN
void router_softmax_cuda(const struct router_cuda *r, cudaStream_t s);
void router_sigmoid_cuda(const struct router_cuda *r, cudaStream_t s);

/* best[i] = the first of rule 26's order of row i of x (n_rows, n), NaN and -inf never (rule 37);
 * ARGMAX_NONE: the row has no other value. scratch: n_rows * argmax_cuda_scratch() bytes of device
 * memory, 8-byte aligned, zero before the first launch; every launch leaves it zero again. */
size_t argmax_cuda_scratch(void);
void argmax_cuda(const float *x, size_t ldx, size_t n, unsigned n_rows, uint32_t *best,
                 void *scratch, cudaStream_t s);
CUDA_END
