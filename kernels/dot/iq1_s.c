/* IQ1_S: 50 bytes for 256 values, 8 sub-blocks of 32.
 * @0 f16 d, @2 qs[32], @34 u16 qh[8]. Word h of a sub-block: three bits above each of its four grid
 * indices, scale 2x + 1 from bits 12..14, bit 15: the shift's sign.
 * w = scale * (8 * grid +- 1), D = d/8: the shift of an eighth as an integer. */
#include "kernels/dot/dot.h"
#include "kernels/dot/tables.h"
#include "kernels/num.h"

void unit_iq1_s(const uint8_t *row, size_t u, struct unit *x)
{
    const uint8_t *b = row + 50 * u;

    x->d = f16_to_f32(load_u16(b)) * 0.125f;
    for (int i = 0; i < 256; i++) {
        int h = load_u16(b + 34 + 2 * (i / 32)), l = i / 8 % 4;
        int index = b[2 + i / 8] + 256 * (h >> 3 * l & 7);
        int scale = 2 * (h >> 12 & 7) + 1, delta = h >> 15 ? -1 : 1;

        x->w[i] = (int16_t)(scale * (8 * (int8_t)grid_byte(iq1s_grid[index], i % 8) + delta));
    }
}
