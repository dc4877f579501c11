/* Pooled keys and their scores. Near-ties decide a selection, so these stay f32 everywhere. */
#include "kernels/index/index.h"

#include "kernels/cpu.h"
#include "kernels/func/func.h"
#include "kernels/num.h"
#include "kernels/softmax/softmax.h"
#include "kernels/sum/sum.h"

#include <assert.h>
#include <math.h>

void pool_mean(const float *const *key, size_t count, size_t d, float *pk)
{
    for (size_t i = 0; i < d; i++) {
        float acc = 0.0f;

        for (size_t s = 0; s < count; s++)
            acc += key[s][i];
        pk[i] = f32_canon(acc / (float)count);
    }
}

void pool_gated(const float *const *key, const float *const *gate, const float *bias, size_t count,
                size_t d, float *pk)
{
    float p[POOL_MEMBERS];

    assert(count >= 1 && count <= POOL_MEMBERS);
    for (size_t i = 0; i < d; i++) {
        float acc = 0.0f;

        for (size_t s = 0; s < count; s++)
            p[s] = bias ? gate[s][i] + bias[s * d + i] : gate[s][i];
        softmax_ref(p, p, count);
        for (size_t s = 0; s < count; s++)
            acc = fmaf(p[s], key[s][i], acc);
        pk[i] = f32_canon(acc);
    }
}

void index_scores_ref(const float *q, const float *w, const float *pk, size_t stride,
                      size_t n_pools, size_t n_heads, size_t d, float scale, float *score)
{
    for (size_t b = 0; b < n_pools; b++) {
        float acc = 0.0f;

        for (size_t h = 0; h < n_heads; h++) {
            float s = f_relu(dot8_ref(q + h * d, pk + b * stride, d) * scale);

            acc = w ? fmaf(w[h], s, acc) : acc + s;
        }
        score[b] = f32_canon(acc);
    }
}

void index_scores(const float *q, const float *w, const float *pk, size_t stride, size_t n_pools,
                  size_t n_heads, size_t d, float scale, float *score)
{
    if (cpu_level() >= CPU_AVX2)
        index_scores_avx2(q, w, pk, stride, n_pools, n_heads, d, scale, score);
    else
        index_scores_ref(q, w, pk, stride, n_pools, n_heads, d, scale, score);
}
