/* Coefficients in plain C only (a few dozen numbers a token); the passes over the streams have
 * faster forms. */
#include "kernels/hyper/hyper.h"

#include "kernels/cpu.h"
#include "kernels/func/func.h"
#include "kernels/num.h"

#include <assert.h>
#include <math.h>

static void row_softmax(float *row, size_t n, float eps)
{
    float m = row[0], l = 0.0f;

    for (size_t j = 1; j < n; j++)
        m = row[j] > m ? row[j] : m;
    for (size_t j = 0; j < n; j++) {
        row[j] = f_exp(row[j] - m);
        l += row[j];
    }
    for (size_t j = 0; j < n; j++)
        row[j] = row[j] / l + eps;
}

/* divides each of n entries, `step` apart, by their sum + eps */
static void normalise(float *c, size_t n, size_t step, float eps)
{
    float sum = 0.0f;

    for (size_t i = 0; i < n; i++)
        sum += c[i * step];
    sum += eps;
    for (size_t i = 0; i < n; i++)
        c[i * step] = f32_canon(c[i * step] / sum);
}

void hyper_sinkhorn(float *C, size_t n, float eps, int iterations)
{
    for (size_t i = 0; i < n; i++)
        row_softmax(C + i * n, n, eps);
    for (int t = 0; t < iterations; t++) {
        for (size_t i = 0; t && i < n; i++)
            normalise(C + i * n, n, 1, eps);
        for (size_t j = 0; j < n; j++)
            normalise(C + j, n, n, eps);
    }
}

void hyper_mix(const float *m, const float *scale, const float *base, size_t n, float eps,
               int iterations, float *pre, float *post, float *C)
{
    for (size_t s = 0; s < n; s++) {
        pre[s] = f32_canon(f_sigmoid(fmaf(m[s], scale[0], base[s])) + eps);
        post[s] = f32_canon(2.0f * f_sigmoid(fmaf(m[n + s], scale[1], base[n + s])));
    }
    for (size_t i = 0; i < n * n; i++)
        C[i] = fmaf(m[2 * n + i], scale[2], base[2 * n + i]);
    hyper_sinkhorn(C, n, eps, iterations);
}

void hyper_collapse_ref(const float *pre, const float *X, size_t n, size_t d, float *x)
{
    for (size_t i = 0; i < d; i++) {
        float acc = 0.0f;

        for (size_t s = 0; s < n; s++)
            acc = fmaf(pre[s], X[s * d + i], acc);
        x[i] = f32_canon(acc);
    }
}

void hyper_expand_ref(const float *post, const float *C, const float *y, float *X, size_t n,
                      size_t d)
{
    assert(n <= HYPER_STREAMS);
    for (size_t i = 0; i < d; i++) {
        float before[HYPER_STREAMS];

        for (size_t u = 0; u < n; u++)
            before[u] = X[u * d + i];
        for (size_t j = 0; j < n; j++) {
            float acc = post[j] * y[i];

            for (size_t u = 0; u < n; u++)
                acc = fmaf(C[u * n + j], before[u], acc);
            X[j * d + i] = f32_canon(acc);
        }
    }
}

void hyper_mean_ref(const float *X, size_t n, size_t d, float *x)
{
    for (size_t i = 0; i < d; i++) {
        float acc = 0.0f;

        for (size_t s = 0; s < n; s++)
            acc += X[s * d + i];
        x[i] = f32_canon(acc / (float)n);
    }
}

void hyper_collapse(const float *pre, const float *X, size_t n, size_t d, float *x)
{
    cpu_level() >= CPU_AVX2 ? hyper_collapse_avx2(pre, X, n, d, x)
                            : hyper_collapse_ref(pre, X, n, d, x);
}

void hyper_expand(const float *post, const float *C, const float *y, float *X, size_t n, size_t d)
{
    cpu_level() >= CPU_AVX2 ? hyper_expand_avx2(post, C, y, X, n, d)
                            : hyper_expand_ref(post, C, y, X, n, d);
}

void hyper_mean(const float *X, size_t n, size_t d, float *x)
{
    cpu_level() >= CPU_AVX2 ? hyper_mean_avx2(X, n, d, x) : hyper_mean_ref(X, n, d, x);
}
