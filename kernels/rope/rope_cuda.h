/* rope.h on a card: the turning alone. The table of rule 23 is the host's work (rope_row) and lies
 * in device memory. Launches on a stream, no allocation, capturable. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "kernels/stream.h"

CUDA_BEGIN
/* In place: row t < n_tokens at x + t * ldx holds `heads` heads of head_values floats, the first
 * n_rot of each are turned by row pos[t] of the tables (n_ctx, n_rot / 2). pos: device memory, read
 * when the kernel runs. */
void rope_neox_cuda(float *x, size_t ldx, unsigned heads, unsigned head_values, unsigned n_rot,
                    const float *cos, const float *sin, const uint32_t *pos, unsigned n_tokens,
                    cudaStream_t s);
CUDA_END
