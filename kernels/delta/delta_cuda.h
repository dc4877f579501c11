/* delta.h on a card: the heads of a batch's tokens, one token after another. Launches on a stream,
 * no allocation, capturable. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "kernels/run.h"
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

/* The same with a sequence's state in two versions. State of slot s, version v: floats from state + s *
 * seq_floats + v * heads * n_k * n_v on, as above; behind both, again for each version, what tokens keep:
 * (most_kept, heads) records of key (n_k), value (n_v), a (n_k, or 1) and beta. A run of at most most_kept tokens
 * is kept in the version that it writes. redo: version `from` is made from the other one and the first `redo`
 * tokens that it keeps, before the run. Head h goes with query and key head h % k_heads of (k_heads, n_k). n_k
 * <= DELTA_CUDA_KEYS. */
enum { DELTA_CUDA_KEYS = 256 };
struct delta_runs_cuda {
    float *state;
    size_t seq_floats;
    unsigned heads, k_heads, n_k, n_v, most_kept; /* most_kept 0: nothing is kept */
    const struct run *run; /* device */
    const uint32_t *n_runs;
    unsigned most_runs;
    const float *a, *q, *key, *value, *beta;
    int a_one;
    float *o;
};
static inline size_t delta_kept_floats(unsigned n_k, unsigned n_v, unsigned n_a) /* of a token's head */
{
    return (size_t)n_k + n_v + n_a + 1;
}

CUDA_BEGIN
void delta_runs_cuda(const struct delta_runs_cuda *d, cudaStream_t s);
void delta_rule_cuda(const struct delta_cuda *d, cudaStream_t s);
CUDA_END
