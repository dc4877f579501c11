/* Scale and bias after a product: rare in files, so there is no fast form. */
#include "kernels/matmul/finish.h"

#include "kernels/num.h"

void product_finish(float *y, size_t n, const float *scale, const float *bias)
{
    for (size_t i = 0; i < n; i++) {
        float v = y[i];

        if (scale)
            v = v * *scale;
        if (bias)
            v = v + bias[i];
        y[i] = f32_canon(v);
    }
}
