/* The convolution as rule 32 writes it. */
#include "kernels/conv/conv.h"

#include "kernels/cpu.h"
#include "kernels/num.h"

#include <math.h>

void short_conv_ref(const float *const *x, const float *w, const float *bias, size_t width,
                    size_t n, float *y)
{
    for (size_t c = 0; c < n; c++) {
        float acc = bias ? bias[c] : 0.0f;

        for (size_t j = 0; j < width; j++)
            acc = fmaf(w[c * width + j], x[j] ? x[j][c] : 0.0f, acc);
        y[c] = f32_canon(acc);
    }
}

void short_conv(const float *const *x, const float *w, const float *bias, size_t width, size_t n,
                float *y)
{
    cpu_level() >= CPU_AVX2 ? short_conv_avx2(x, w, bias, width, n, y)
                            : short_conv_ref(x, w, bias, width, n, y);
}
