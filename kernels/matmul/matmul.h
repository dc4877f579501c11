/* Products of weight rows with prepared vectors (ARITHMETIC.md rules 8 to 14, without scale and
 * bias), and rows read as values (rule 38). The form is chosen by cpu_level(); the bits are the
 * same for every form, row range and number of vectors (rule 16). */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* y[i*ldy + (r - r0)] = row r of W times vector (idx ? idx[i] : i), rows r0 <= r < r1, i < n_tok;
 * a NaN is stored as 0x7FC00000.
 * w: row 0 of the matrix, rows row_bytes apart, any alignment; n_cols a multiple of the type's
 * block. acts: vectors prepared by act_prepare in the type's form (type_info(type)->act), a_stride
 * bytes apart. The type must be built (type_info(type)->built). */
void matmul(uint32_t type, const void *w, size_t row_bytes, size_t n_cols, size_t r0, size_t r1,
            const void *acts, size_t a_stride, const uint32_t *idx, size_t n_tok, float *y,
            size_t ldy);

/* The same of two matrices of one type and shape, as two calls would. */
void matmul_two(uint32_t type, const void *const w[2], size_t row_bytes, size_t n_cols, size_t r0,
                size_t r1, const void *acts, size_t a_stride, const uint32_t *idx, size_t n_tok,
                float *const y[2], size_t ldy);

/* A table row as f32 values (rule 38). */
void dequant_row(uint32_t type, const void *row, size_t n_cols, float *out);
