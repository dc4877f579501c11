/* RMSNorm, L2 norm, LayerNorm. 1/sqrt is a correctly rounded square root and then a division, never
 * an approximation. */
#include "kernels/norm/norm.h"

#include "kernels/cpu.h"
#include "kernels/num.h"
#include "kernels/sum/sum.h"

#include <math.h>

void rms_norm_ref(const float *x, const float *w, float *y, size_t n, float eps) /* rule 21 */
{
    float s = 1.0f / sqrtf(dot32_ref(x, x, n) / (float)n + eps);

    for (size_t i = 0; i < n; i++)
        y[i] = f32_canon(w ? (x[i] * s) * w[i] : x[i] * s);
}

void rms_norm_gated_ref(const float *x, const float *w, const float *act, float *y, size_t n,
                        float eps) /* rule 21 */
{
    float s = 1.0f / sqrtf(dot32_ref(x, x, n) / (float)n + eps);

    for (size_t i = 0; i < n; i++)
        y[i] = f32_canon(((x[i] * s) * w[i]) * act[i]);
}

void l2_norm_ref(const float *x, float *y, size_t n, float eps) /* rule 22 */
{
    float s = 1.0f / sqrtf(dot32_ref(x, x, n) + eps);

    for (size_t i = 0; i < n; i++)
        y[i] = f32_canon(x[i] * s);
}

void layer_norm_ref(const float *x, const float *w, const float *b, float *y, size_t n,
                    float eps) /* rule 22 */
{
    float m = sum32_ref(x, n) / (float)n, s;

    for (size_t i = 0; i < n; i++)
        y[i] = x[i] - m;
    s = 1.0f / sqrtf(dot32_ref(y, y, n) / (float)n + eps);
    for (size_t i = 0; i < n; i++)
        y[i] = f32_canon(fmaf(y[i] * s, w[i], b[i]));
}

void rms_norm(const float *x, const float *w, float *y, size_t n, float eps)
{
    cpu_level() >= CPU_AVX2 ? rms_norm_avx2(x, w, y, n, eps) : rms_norm_ref(x, w, y, n, eps);
}

void rms_norm_gated(const float *x, const float *w, const float *act, float *y, size_t n, float eps)
{
    cpu_level() >= CPU_AVX2 ? rms_norm_gated_avx2(x, w, act, y, n, eps)
                            : rms_norm_gated_ref(x, w, act, y, n, eps);
}

void l2_norm(const float *x, float *y, size_t n, float eps)
{
    cpu_level() >= CPU_AVX2 ? l2_norm_avx2(x, y, n, eps) : l2_norm_ref(x, y, n, eps);
}

void layer_norm(const float *x, const float *w, const float *b, float *y, size_t n, float eps)
{
    cpu_level() >= CPU_AVX2 ? layer_norm_avx2(x, w, b, y, n, eps)
                            : layer_norm_ref(x, w, b, y, n, eps);
}
