/* The functions of ARITHMETIC.md rules 17 to 20: fixed sequences of binary32 operations, so every
 * form gives the same bits for every input. A NaN result is 0x7fc00000 (rule 4).
 *
 * Vector forms: x and y are n floats, aligned or not, and may be the same array. */
#pragma once
#include <stddef.h>

float f_exp(float x);                       /* 17: above 89 +inf, below -104 +0 */
float f_log1p(float u);                     /* 18: 0 <= u <= 1 */
float f_softplus(float x);                  /* 18: beta 1, no threshold */
float f_sigmoid(float x);                   /* 19 */
float f_silu(float x);                      /* 19: -inf gives NaN */
float f_tanh(float x);                      /* 20 */
float f_relu(float x);                      /* 5: NaN stays NaN */
float f_clamp(float x, float lo, float hi); /* 5: NaN stays NaN */

/* y_i = f(x_i), by the best form the processor has */
void vec_exp(const float *x, float *y, size_t n);
void vec_softplus(const float *x, float *y, size_t n);
void vec_sigmoid(const float *x, float *y, size_t n);
void vec_silu(const float *x, float *y, size_t n);
void vec_tanh(const float *x, float *y, size_t n);

/* 19, an expert's activation: h_i = fl(silu(g_i) * u_i). h may be g or u. */
void silu_mul(const float *g, const float *u, float *h, size_t n);
/* The same after the clamps: g to at most limit, u to [-limit, limit]. limit <= 0: no clamp. */
void clamp_swiglu(const float *g, const float *u, float limit, float *h, size_t n);

/* the forms that the above choose from */
void vec_exp_ref(const float *x, float *y, size_t n);
void vec_softplus_ref(const float *x, float *y, size_t n);
void vec_sigmoid_ref(const float *x, float *y, size_t n);
void vec_silu_ref(const float *x, float *y, size_t n);
void vec_tanh_ref(const float *x, float *y, size_t n);
void clamp_swiglu_ref(const float *g, const float *u, float limit, float *h, size_t n);

void vec_exp_avx2(const float *x, float *y, size_t n);
void vec_softplus_avx2(const float *x, float *y, size_t n);
void vec_sigmoid_avx2(const float *x, float *y, size_t n);
void vec_silu_avx2(const float *x, float *y, size_t n);
void vec_tanh_avx2(const float *x, float *y, size_t n);
void clamp_swiglu_avx2(const float *g, const float *u, float limit, float *h, size_t n);

void vec_exp_avx512(const float *x, float *y, size_t n);
