/* Hyper-connections of glm5next, ARITHMETIC.md rule 33: n streams of d floats beside each other.
 * X is (n, d). */
#pragma once
#include <stddef.h>

#define HYPER_STREAMS 16 /* most streams */

/* The coefficients from m, the projection of one token: 2n + n*n values. scale: 3, base: as m.
 * pre_s = fl(sigmoid(fma(m[s], scale[0], base[s])) + eps); post_s = fl(2 * sigmoid(fma(m[n+s],
 * scale[1], base[n+s]))); C (n, n), first index from, second to: hyper_sinkhorn of fma(m[2n+n*u+s],
 * scale[2], base[2n+n*u+s]). */
void hyper_mix(const float *m, const float *scale, const float *base, size_t n, float eps,
               int iterations, float *pre, float *post, float *C);
/* C (n, n), in place: each row by softmax (CHAIN sum), each entry + eps; then column step, and
 * (row, column) for each further iteration. iterations >= 1. */
void hyper_sinkhorn(float *C, size_t n, float eps, int iterations);

/* x_i = CHAIN over s of fma(pre_s, X_s[i], acc) */
void hyper_collapse(const float *pre, const float *X, size_t n, size_t d, float *x);
/* X_j[i] = fl(post_j * y_i), then fma(C[u][j], X_u[i], acc), u ascending, all X_u from before */
void hyper_expand(const float *post, const float *C, const float *y, float *X, size_t n, size_t d);
/* x_i = (CHAIN of adds over s of X_s[i]) / float(n) */
void hyper_mean(const float *X, size_t n, size_t d, float *x);

void hyper_collapse_ref(const float *pre, const float *X, size_t n, size_t d, float *x);
void hyper_expand_ref(const float *post, const float *C, const float *y, float *X, size_t n,
                      size_t d);
void hyper_mean_ref(const float *X, size_t n, size_t d, float *x);
void hyper_collapse_avx2(const float *pre, const float *X, size_t n, size_t d, float *x);
void hyper_expand_avx2(const float *post, const float *C, const float *y, float *X, size_t n,
                       size_t d);
void hyper_mean_avx2(const float *X, size_t n, size_t d, float *x);
