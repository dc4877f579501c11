/* The sum over a token's experts and the additions around it, ARITHMETIC.md rule 28. Vectors are n
 * floats; a NaN result is 0x7fc00000. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* acc_i = CHAIN over places p = 0 ... k-1 from +0 of fma(w_p, rows[p]_i, acc). acc is none of the
 * rows. */
void moe_sum(const float *w, const float *const *rows, uint32_t k, float *acc, size_t n);
/* x_i = fl(x_i + y_i): residual, shared expert */
void vec_add(float *x, const float *y, size_t n);
/* x_i = fma(a, y_i, x_i): gated shared expert */
void vec_fma1(float a, const float *y, float *x, size_t n);
/* x_i = fl(x_i * y_i): output gates */
void vec_mul(float *x, const float *y, size_t n);

void moe_sum_ref(const float *w, const float *const *rows, uint32_t k, float *acc, size_t n);
void vec_add_ref(float *x, const float *y, size_t n);
void vec_fma1_ref(float a, const float *y, float *x, size_t n);
void vec_mul_ref(float *x, const float *y, size_t n);

void moe_sum_avx2(const float *w, const float *const *rows, uint32_t k, float *acc, size_t n);
void vec_add_avx2(float *x, const float *y, size_t n);
void vec_fma1_avx2(float a, const float *y, float *x, size_t n);
void vec_mul_avx2(float *x, const float *y, size_t n);
