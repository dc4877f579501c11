/* Rows of a table as f32 values on a card (ARITHMETIC.md rule 38): the embedding. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "kernels/stream.h"

CUDA_BEGIN
/* out (n_tokens, n_cols), ldo floats from row to row: row ids[t] of the table w of weight type
 * `type` (kernels/type/type.h, a built one), rows row_bytes apart, any alignment. ids: device
 * memory, read when the kernel runs. No allocation, capturable. */
void dequant_rows_cuda(uint32_t type, const void *w, size_t row_bytes, size_t n_cols,
                       const uint32_t *ids, float *out, size_t ldo, unsigned n_tokens,
                       cudaStream_t s);
/* out (n_tokens, rows, n_cols): rows that lie side by side, row_bytes each, in each token's token_bytes from w on. */
void dequant_table_cuda(uint32_t type, const void *w, size_t token_bytes, size_t row_bytes, unsigned rows, size_t n_cols,
                        float *out, unsigned n_tokens, cudaStream_t s);
/* out row i = row idx[i] of x, n floats each, for i < *n_live (device; NULL: n_rows); rows behind
 * get row 0, so that they hold nothing that was never written. */
void pick_rows_cuda(const float *x, size_t ldx, const uint32_t *idx, const uint32_t *n_live,
                    float *out, size_t ldo, size_t n, unsigned n_rows, cudaStream_t s);
/* out (n_rows, groups, n) = values [from, from + n) of each of `groups` groups, `pitch` floats apart in a row of x; rows
 * ldx and ldo floats apart. pitch 0: copies side by side. */
void slice_rows_cuda(const float *x, size_t ldx, unsigned groups, unsigned n, unsigned from, unsigned pitch,
                     float *out, size_t ldo, unsigned n_rows, cudaStream_t s);
CUDA_END
