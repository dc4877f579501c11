/* IQ4_XS: 136 bytes for 256 values, 8 sub-blocks of 32.
 * @0 f16 d, @2 u16 scales_h, @4 scales_l[4], @8 qs[128]: each sub-block 16 bytes as IQ4_NL.
 * Scale of sub-block s: nibble s of scales_l, two bits of scales_h above it, minus 32. */
#include "kernels/dot/dot.h"
#include "kernels/dot/tables.h"
#include "kernels/num.h"

void unit_iq4_xs(const uint8_t *row, size_t u, struct unit *x)
{
    const uint8_t *b = row + 136 * u;

    x->d = f16_to_f32(load_u16(b));
    for (int i = 0; i < 256; i++) {
        int s = i / 32, j = i % 16, q = b[8 + 16 * s + j] >> 4 * (i / 16 % 2) & 15;
        int low = b[4 + s / 2] >> 4 * (s % 2) & 15, high = load_u16(b + 2) >> 2 * s & 3;

        x->w[i] = (int16_t)((low + 16 * high - 32) * iq4_values[q]);
    }
}
