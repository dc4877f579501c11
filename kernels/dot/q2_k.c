/* Q2_K: 84 bytes for 256 values, 16 sub-blocks of 16.
 * @0 scales[16] (low nibble: scale, high: minimum), @16 qs[64], @80 f16 d, @82 f16 dmin.
 * Value 128h + 32j + l: bits 2j.. of qs[32h + l]; w = scale * q, value d*w - dmin*mn. */
#include "kernels/dot/dot.h"
#include "kernels/num.h"

void unit_q2_k(const uint8_t *row, size_t u, struct unit *x)
{
    const uint8_t *b = row + 84 * u;

    x->d = f16_to_f32(load_u16(b + 80));
    x->m = f16_to_f32(load_u16(b + 82));
    for (int i = 0; i < 256; i++) {
        int h = i / 128, j = i / 32 % 4, l = i % 32, q = b[16 + 32 * h + l] >> 2 * j & 3;

        x->w[i] = (int16_t)((b[i / 16] & 15) * q);
        x->mn[i] = b[i / 16] >> 4;
    }
}
