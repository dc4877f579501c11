/* Norms over a vector of n floats, ARITHMETIC.md rules 21 and 22. x and y may be the same array.
 * A NaN in y is 0x7fc00000. n >= 1. */
#pragma once
#include <stddef.h>

/* y_i = (x_i * s) * w_i, s = 1 / sqrt(SUM32(x^2) / n + eps). w NULL: y_i = x_i * s. */
void rms_norm(const float *x, const float *w, float *y, size_t n, float eps);
/* y_i = ((x_i * s) * w_i) * act_i: act = silu(gate) or sigmoid(gate), made by the caller */
void rms_norm_gated(const float *x, const float *w, const float *act, float *y, size_t n,
                    float eps);
/* y_i = x_i * s, s = 1 / sqrt(SUM32(x^2) + eps) */
void l2_norm(const float *x, float *y, size_t n, float eps);
/* y_i = fma(c_i * s, w_i, b_i), c = x - mean, s = 1 / sqrt(SUM32(c^2) / n + eps). y is not w or b
 */
void layer_norm(const float *x, const float *w, const float *b, float *y, size_t n, float eps);

void rms_norm_ref(const float *x, const float *w, float *y, size_t n, float eps);
void rms_norm_gated_ref(const float *x, const float *w, const float *act, float *y, size_t n,
                        float eps);
void l2_norm_ref(const float *x, float *y, size_t n, float eps);
void layer_norm_ref(const float *x, const float *w, const float *b, float *y, size_t n, float eps);

void rms_norm_avx2(const float *x, const float *w, float *y, size_t n, float eps);
void rms_norm_gated_avx2(const float *x, const float *w, const float *act, float *y, size_t n,
                         float eps);
void l2_norm_avx2(const float *x, float *y, size_t n, float eps);
void layer_norm_avx2(const float *x, const float *w, const float *b, float *y, size_t n, float eps);
