/* IQ2_XS: 74 bytes for 256 values, 16 sub-blocks of 16.
 * @0 f16 d, @2 u16 qs[32]: per eight values nine bits of grid index, seven of signs;
 * @66 scales[8]: nibble x of a sub-block, scale 2x + 1. D = d/8. */
#include "kernels/dot/dot.h"
#include "kernels/dot/tables.h"
#include "kernels/num.h"

void unit_iq2_xs(const uint8_t *row, size_t u, struct unit *x)
{
    const uint8_t *b = row + 74 * u;

    x->d = f16_to_f32(load_u16(b)) * 0.125f;
    for (int i = 0; i < 256; i++) {
        unsigned q = load_u16(b + 2 + 2 * (i / 8));
        int j = i % 8, scale = 2 * (b[66 + i / 32] >> 4 * (i / 16 % 2) & 15) + 1;
        int v = scale * grid_byte(iq2xs_grid[q & 511], j);

        x->w[i] = (int16_t)(sign_masks[q >> 9] >> j & 1 ? -v : v);
    }
}
