/* MXFP4: 17 bytes for 32 values. @0 e, @1 qs[16], nibbles as Q4_0; w is twice the four-bit float,
 * D = 2^(e - 128). */
#include "kernels/dot/dot.h"
#include "kernels/dot/tables.h"
#include "kernels/num.h"

void unit_mxfp4(const uint8_t *row, size_t u, struct unit *x)
{
    const uint8_t *b = row + 17 * u;

    x->d = f32_from_bits(e8m0_half_bits[b[0]]);
    for (int j = 0; j < 16; j++) {
        x->w[j] = e2m1_values[b[1 + j] & 15];
        x->w[j + 16] = e2m1_values[b[1 + j] >> 4];
    }
}
