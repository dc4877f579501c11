/* conv.h on a card: the tokens of a batch, each with the rows of its sequence before it. Launches
 * on a stream, no allocation, capturable. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "kernels/stream.h"

enum { CONV_CUDA_WIDTH = 16 }; /* most taps */

/* All in device memory. history: of slot s the last width - 1 rows, (width - 1, n) oldest first,
 * zeros before the sequence's start; read from `from`, the next version goes to `to` (the same
 * array, or apart; a slot without tokens keeps its rows in `to` as they are). x, y: (n_tokens, n),
 * ldx and ldy floats from row to row, y is not x. w (n, width), bias (n) or NULL. Token t belongs
 * to slot seq[t]. */
struct conv_cuda {
    const float *from;
    float *to;
    const float *x, *w, *bias;
    float *y;
    size_t ldx, ldy, n;
    unsigned width, n_slots, n_tokens;
    const uint32_t *seq;
};

CUDA_BEGIN
void short_conv_cuda(const struct conv_cuda *c, cudaStream_t s);
CUDA_END
