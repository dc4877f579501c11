/* IQ2_S: 82 bytes for 256 values, 16 sub-blocks of 16.
 * @0 f16 d, @2 qs[32], @34 signs[32], @66 qh[8], @74 scales[8].
 * Per eight values g: grid index qs[g] and two bits of qh[g / 4] above it, plain sign byte; scales
 * as IQ2_XS. D = d/8. */
#include "kernels/dot/dot.h"
#include "kernels/dot/tables.h"
#include "kernels/num.h"

void unit_iq2_s(const uint8_t *row, size_t u, struct unit *x)
{
    const uint8_t *b = row + 82 * u;

    x->d = f16_to_f32(load_u16(b)) * 0.125f;
    for (int i = 0; i < 256; i++) {
        int g = i / 8, j = i % 8, index = b[2 + g] + 256 * (b[66 + g / 4] >> 2 * (g % 4) & 3);
        int scale = 2 * (b[74 + i / 32] >> 4 * (i / 16 % 2) & 15) + 1;
        int v = scale * grid_byte(iq2s_grid[index], j);

        x->w[i] = (int16_t)(b[34 + g] >> j & 1 ? -v : v);
    }
}
