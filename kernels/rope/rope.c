/* The table's angles are doubles of rule 23; the turning itself is f32. */
#include "kernels/rope/rope.h"

#include "kernels/cpu.h"
#include "kernels/func/hostmath.h"
#include "kernels/num.h"

#include <math.h>

void rope_row_ref(double base, uint32_t n_rot, uint64_t position, float *cos,
                  float *sin) /* rule 23 */
{
    double ln_base = h_ln(base);

    for (uint32_t i = 0; i < n_rot / 2; i++) {
        double t = (double)(2 * i) / (double)n_rot;
        double inv = h_exp(-(t * ln_base)), s, c;

        h_sincos((double)position * inv, &s, &c);
        cos[i] = (float)c;
        sin[i] = (float)s;
    }
}

void rope_neox_ref(float *x, uint32_t n_rot, const float *cos, const float *sin) /* rule 24 */
{
    uint32_t half = n_rot / 2;

    for (uint32_t i = 0; i < half; i++) {
        float a = x[i], b = x[i + half];

        x[i] = f32_canon(fmaf(-b, sin[i], a * cos[i]));
        x[i + half] = f32_canon(fmaf(a, sin[i], b * cos[i]));
    }
}

void rope_row(double base, uint32_t n_rot, uint64_t position, float *cos, float *sin)
{
    cpu_level() >= CPU_AVX2 ? rope_row_avx2(base, n_rot, position, cos, sin)
                            : rope_row_ref(base, n_rot, position, cos, sin);
}

void rope_neox(float *x, uint32_t n_rot, const float *cos, const float *sin)
{
    cpu_level() >= CPU_AVX2 ? rope_neox_avx2(x, n_rot, cos, sin)
                            : rope_neox_ref(x, n_rot, cos, sin);
}
