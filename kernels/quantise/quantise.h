/* A vector as the operand of a product (ARITHMETIC.md rule 8).
 *
 * Prepared form of n values, one allocation, each part at a multiple of 64 bytes from its start:
 *   ACT_F32    float x[n]                                      any n
 *   ACT_A32    int8 q[n], float d[n/32],  int32 sum[n/32]      n % 32 == 0
 *   ACT_A256   int8 q[n], float d[n/256], int16 sum[n/16]      n % 256 == 0
 * q is in -127..127; a value is d * q. sum: of q over 32, respectively 16 values, for T (rule 10)
 * and for forms that shift signed weights to unsigned. Padding bytes mean nothing. */
#pragma once
#include "kernels/type/type.h"
#include <stddef.h>
#include <stdint.h>

/* bytes of one prepared vector, a multiple of 64 */
size_t act_stride(enum act_form form, size_t n);
/* out: act_stride(form, n) bytes, 64-byte aligned. A NaN or infinity in a unit makes its d NaN. */
void act_prepare(enum act_form form, const float *x, size_t n, void *out);

static inline size_t act_pad(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

/* where d and the sums begin; q begins at 0 */
static inline size_t act_d_at(size_t n)
{
    return act_pad(n);
}
static inline size_t act_sum_at(enum act_form form, size_t n)
{
    return act_pad(n) + act_pad(n / (form == ACT_A32 ? 32 : 256) * sizeof(float));
}

/* a prepared vector's parts (borrows it); sum is int32 or int16 by form */
struct act {
    const int8_t *q;
    const float *d;
    const void *sum;
};
static inline struct act act_parts(enum act_form form, const void *prepared, size_t n)
{
    const char *p = (const char *)prepared;

    return (struct act){(const int8_t *)p, (const float *)(p + act_d_at(n)),
                        p + act_sum_at(form, n)};
}

/* One unit of n values (32 or 256): the forms of rule 8. sum16: n / 16 sums. */
typedef void quantise_unit_fn(const float *x, size_t n, int8_t *q, float *d, int16_t *sum16);
quantise_unit_fn quantise_unit;      /* plain C, the definition */
quantise_unit_fn quantise_unit_avx2; /* n % 32 == 0 */
