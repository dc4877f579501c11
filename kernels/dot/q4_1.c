/* Q4_1: 20 bytes for 32 values. @0 f16 d, @2 f16 m, @4 qs[16], nibbles as Q4_0; w = nibble, value
 * d * w + m. */
#include "kernels/dot/dot.h"
#include "kernels/num.h"

void unit_q4_1(const uint8_t *row, size_t u, struct unit *x)
{
    const uint8_t *b = row + 20 * u;

    x->d = f16_to_f32(load_u16(b));
    x->m = f16_to_f32(load_u16(b + 2));
    for (int j = 0; j < 16; j++) {
        x->w[j] = b[4 + j] & 15;
        x->w[j + 16] = b[4 + j] >> 4;
        x->mn[j] = x->mn[j + 16] = 1;
    }
}
