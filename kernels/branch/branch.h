/* Residual branches of qwen4exp (its page, "In the engine's arithmetic"): n streams of d floats beside each
 * other, mixed by gates. A NaN result is 0x7fc00000. */
#pragma once
#include <stddef.h>

/* m_i = (CHAIN over streams s from +0 of fma(g[s][i], x[s][i], acc)) / float(n). g and x are (n, d). */
void branch_mean(const float *g, const float *x, size_t n, size_t d, float *m);
/* The gate of a looked-up value. For each stream: a = (SUM32 with fma of k[s], q[s]; + 0) * scale; b = |a|, at
 * least 1e-6; z = a = 0 ? 0 : sqrt(b) with the sign of a; u[s][i] = fl(sigmoid(z) * v[i]). k, q and u are (n, d), v
 * is d floats. u is neither k nor q nor v. */
void branch_gate(const float *k, const float *q, const float *v, float scale, size_t n, size_t d, float *u);
/* sigmoid(z) of one stream, from its product of k and q */
float branch_gate_of(float product, float scale);

void branch_mean_ref(const float *g, const float *x, size_t n, size_t d, float *m);
void branch_gate_ref(const float *k, const float *q, const float *v, float scale, size_t n, size_t d, float *u);
void branch_mean_avx2(const float *g, const float *x, size_t n, size_t d, float *m);
void branch_gate_avx2(const float *k, const float *q, const float *v, float scale, size_t n, size_t d, float *u);
