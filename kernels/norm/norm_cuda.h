/* norm.h on a card: many vectors in one launch. Vector (row, piece) lies at x + row * ldx + piece *
 * n and goes to y + row * ldy + piece * n; x and y may be the same. Weights are n floats, the same
 * for all (but see each). Launches on a stream, no allocation, capturable. A NaN in y is 0x7fc00000. */
#pragma once
#include <stddef.h>

#include "kernels/stream.h"

struct norm_rows {
    const float *x;
    float *y;
    size_t ldx, ldy; /* floats from row to row */
    unsigned rows, pieces;
    size_t n; /* of a vector, >= 1 */
    unsigned each; /* 1: rms_norm_cuda's w has n floats for each piece */
};

CUDA_BEGIN
/* w NULL: none */
void rms_norm_cuda(const struct norm_rows *r, const float *w, float eps, cudaStream_t s);
/* act: like x, ldx and all: what each value is multiplied by last */
void rms_norm_gated_cuda(const struct norm_rows *r, const float *w, const float *act, float eps,
                         cudaStream_t s);
void l2_norm_cuda(const struct norm_rows *r, float eps, cudaStream_t s);
void layer_norm_cuda(const struct norm_rows *r, const float *w, const float *b, float eps,
                     cudaStream_t s);
CUDA_END
