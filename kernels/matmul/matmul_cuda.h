/* Products of weight rows with prepared vectors on a card: the bits of kernels/matmul (ARITHMETIC.md
 * rules 8 to 14 and 16). Launchers allocate nothing, wait for nothing and may be captured; they
 * return 0 or a cudaError_t. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct CUstream_st;

/* Loads every product's and expert's kernel into the current context. Once a context, before the
 * first launch: the first use of a kernel would wait for whatever runs. */
int products_load_cuda(void);

/* y[i * ldy + r] = row r of W times vector (idx ? idx[i] : i), r < n_rows, i < n_tok; then y times
 * *scale, plus bias[r], where they are not NULL; a NaN is stored as 0x7FC00000. All pointers are
 * device pointers.
 * w: 16-byte aligned, rows row_bytes apart (a multiple of the block, or of 16), readable to the end
 * of the sixteen bytes that the last row ends in, and not written by the launch just before this
 * one in the stream: it is read early. acts: vectors by act_prepare_cuda, a_stride bytes apart.
 * cudaErrorInvalidValue: no such type, wrong alignment, or rows too long for the card. */
int matmul_cuda(uint32_t type, const void *w, size_t row_bytes, uint32_t n_cols, uint32_t n_rows,
                const void *acts, size_t a_stride, const uint32_t *idx, uint32_t n_tok,
                const float *scale, const float *bias, float *y, size_t ldy,
                struct CUstream_st *stream);
