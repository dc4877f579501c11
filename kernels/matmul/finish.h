/* What follows a product (ARITHMETIC.md rule 14). */
#pragma once
#include <stddef.h>

/* y (n): y = fl(y * *scale), then y = fl(y + bias_i), a NaN canonical. Either may be NULL. */
void product_finish(float *y, size_t n, const float *scale, const float *bias);
