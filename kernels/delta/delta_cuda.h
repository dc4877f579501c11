/* delta.h on a card: the heads of a batch's tokens, one token after another. Launches on a stream,
 * no allocation, capturable. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "kernels/stream.h"

/* Everything lies in device memory. State: slot s, head h at (s * heads + h) * n_k * n_v floats,
 * (n_k, n_v) each; it is read from `from` and its next version written to `to` (the same array, or
 * apart). Rows of tokens: key, q (heads, n_k), a (heads, n_k) or (heads) where a_one is not 0, beta
 * (heads), value, o (heads, n_v), each without gaps. Token t belongs to slot seq[t], read when the
 * kernel runs; a slot without tokens keeps its state in `to` as it is. A NaN in o and `to` is
 * 0x7fc00000. */
struct delta_cuda {
    const float *from;
    float *to;
    unsigned heads, n_k, n_v, n_slots, n_tokens;
    const uint32_t *seq;
    const float *a, *q, *key, *value, *beta;
    int a_one;
    float *o;
};

CUDA_BEGIN
void delta_rule_cuda(const struct delta_cuda *d, cudaStream_t s);
CUDA_END
