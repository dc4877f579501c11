/* The recurrence, column by column. */
#include "kernels/delta/delta.h"

#include "kernels/cpu.h"
#include "kernels/num.h"

#include <math.h>

static float fold4(const float l[4])
{
    return (l[0] + l[2]) + (l[1] + l[3]);
}

void delta_rule_ref(const float *from, float *to, size_t pitch, const float *a, int a_one,
                    const float *q, const float *key, const float *value, float beta, size_t n_k,
                    size_t n_v, float *o) /* rule 31 */
{
    for (size_t v = 0; v < n_v; v++) {
        float lane[4] = {0}, t;

        for (size_t k = 0; k < n_k; k++) {
            float s = from[k * pitch + v] * a[a_one ? 0 : k];

            to[k * pitch + v] = s;
            lane[k % 4] = fmaf(s, key[k], lane[k % 4]);
        }
        t = (value[v] - fold4(lane)) * beta;
        lane[0] = lane[1] = lane[2] = lane[3] = 0.0f;
        for (size_t k = 0; k < n_k; k++) {
            float s = fmaf(key[k], t, to[k * pitch + v]);

            to[k * pitch + v] = f32_canon(s);
            lane[k % 4] = fmaf(s, q[k], lane[k % 4]);
        }
        o[v] = f32_canon(fold4(lane));
    }
}

void delta_rule(const float *from, float *to, size_t pitch, const float *a, int a_one,
                const float *q, const float *key, const float *value, float beta, size_t n_k,
                size_t n_v, float *o)
{
    if (cpu_level() >= CPU_AVX2)
        delta_rule_avx2(from, to, pitch, a, a_one, q, key, value, beta, n_k, n_v, o);
    else
        delta_rule_ref(from, to, pitch, a, a_one, q, key, value, beta, n_k, n_v, o);
}
