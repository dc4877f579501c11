/* conv.h on a card: the tokens of a batch, each with the rows of its sequence before it. Launches
 * on a stream, no allocation, capturable. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "kernels/run.h"
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

/* Tails: of each sequence the last `keep` rows of n floats, twice: row p of version v of slot s at base + s *
 * seq_floats + (v * keep + p % keep) * n, p a position. */
struct tails_cuda {
    float *base;
    size_t seq_floats;
    unsigned keep, n;
    const struct run *run; /* device */
    const uint32_t *n_runs;
    unsigned most_runs;
};
/* The convolution of a batch's tokens with the rows before it from the version that is read, then silu; its taps
 * are `gap` positions apart. x
 * (n_tokens, n), y likewise; x is not y. w (n, width). */
struct conv_runs_cuda {
    struct tails_cuda tails;
    const float *x, *w;
    float *y;
    unsigned width, gap, n_tokens;
};

CUDA_BEGIN
void silu_conv_runs_cuda(const struct conv_runs_cuda *c, cudaStream_t s);
/* Values [a, a + n) of the version that is written: the rows of the runs' tokens, x (n_tokens, n), and what is left
 * of the version that is read. */
void tails_write_cuda(const struct tails_cuda *t, const float *x, unsigned a, unsigned n, cudaStream_t s);
void short_conv_cuda(const struct conv_cuda *c, cudaStream_t s);
CUDA_END
