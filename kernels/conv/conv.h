/* Short convolution along the sequence, ARITHMETIC.md rule 32: every channel on its own. */
#pragma once
#include <stddef.h>

/* y_c = CHAIN from bias_c (NULL: +0), oldest first, of fma(w[c][j], x[j]_c, acc), j < width.
 * w is (n, width). x: width rows of n floats, oldest first; NULL: a row before the sequence's
 * start, +0, multiplied like the others. y is none of the rows. A NaN result is 0x7fc00000. */
void short_conv(const float *const *x, const float *w, const float *bias, size_t width, size_t n,
                float *y);

void short_conv_ref(const float *const *x, const float *w, const float *bias, size_t width,
                    size_t n, float *y);
void short_conv_avx2(const float *const *x, const float *w, const float *bias, size_t width,
                     size_t n, float *y);
