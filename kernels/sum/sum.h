/* The orders of float sums, ARITHMETIC.md rule 7. Each form gives the same bits.
 *
 *   SUM32  term i to lane i % 32, terms ascending, then lane[j] += lane[j + h], h = 16, 8, 4, 2, 1
 *   LANE8  lane i % 8, ((0+4)+(2+6)) + ((1+5)+(3+7));  LANE4  (0+2) + (1+3);  CHAIN  one lane
 *
 * "dot" is with fma: lane = fma(a_i, b_i, lane). Lanes start as +0. n = 0 gives +0. A NaN result is
 * 0x7fc00000. No "+ 0" is added at the end (rule 13 wants one: its caller adds it). */
#pragma once
#include <stddef.h>

float sum32(const float *x, size_t n);
float dot32(const float *a, const float *b, size_t n);
float dot8(const float *a, const float *b, size_t n);
float dot4(const float *a, const float *b, size_t n);
float sum_chain(const float *x, size_t n); /* acc = fl(acc + x_i) */

float sum32_ref(const float *x, size_t n);
float dot32_ref(const float *a, const float *b, size_t n);
float dot8_ref(const float *a, const float *b, size_t n);

float sum32_avx2(const float *x, size_t n);
float dot32_avx2(const float *a, const float *b, size_t n);
float dot8_avx2(const float *a, const float *b, size_t n);
