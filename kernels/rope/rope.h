/* Rotary positions, ARITHMETIC.md rules 23 and 24. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* One position's row of the table: n_rot / 2 cosines and as many sines. Pair i turns by
 * position * exp(-((2i)/n_rot * ln base)), in doubles, rounded to f32 once. base: the file's f32,
 * widened. n_rot even, position < 2^21. Costs microseconds: made once a position, kept by the
 * caller. */
void rope_row(double base, uint32_t n_rot, uint64_t position, float *cos, float *sin);

/* Turns one head in place: pairs (x_i, x_{i + n_rot/2}) for i < n_rot/2; elements from n_rot on are
 * not touched. A NaN result is 0x7fc00000. */
void rope_neox(float *x, uint32_t n_rot, const float *cos, const float *sin);

void rope_row_ref(double base, uint32_t n_rot, uint64_t position, float *cos, float *sin);
void rope_row_avx2(double base, uint32_t n_rot, uint64_t position, float *cos, float *sin);
void rope_neox_ref(float *x, uint32_t n_rot, const float *cos, const float *sin);
void rope_neox_avx2(float *x, uint32_t n_rot, const float *cos, const float *sin);
