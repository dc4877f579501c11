/* Softmax, ARITHMETIC.md rule 25: p_i = exp(x_i - max) / SUM32 of the exps. n >= 1. x and p may be
 * the same array. A NaN among the x, +inf, or nothing but -inf makes every p NaN (0x7fc00000). */
#pragma once
#include <stddef.h>

void softmax(const float *x, float *p, size_t n);

void softmax_ref(const float *x, float *p, size_t n);
void softmax_avx2(const float *x, float *p, size_t n);
