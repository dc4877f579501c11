/* IQ2_XXS: 66 bytes for 256 values, 8 sub-blocks of 32.
 * @0 f16 d, then per sub-block 8 bytes: four grid indices, then u32 B: four times 7 sign bits, and
 * the scale 2x + 1 in the top four. D = d/8. */
#include "kernels/dot/dot.h"
#include "kernels/dot/tables.h"
#include "kernels/num.h"

void unit_iq2_xxs(const uint8_t *row, size_t u, struct unit *x)
{
    const uint8_t *b = row + 66 * u;

    x->d = f16_to_f32(load_u16(b)) * 0.125f;
    for (int i = 0; i < 256; i++) {
        const uint8_t *group = b + 2 + 8 * (i / 32);
        uint32_t bits = load_u32(group + 4);
        int l = i / 8 % 4, j = i % 8, scale = (int)(2 * (bits >> 28) + 1);
        int v = scale * grid_byte(iq2xxs_grid[group[l]], j);

        x->w[i] = (int16_t)(sign_masks[bits >> 7 * l & 127] >> j & 1 ? -v : v);
    }
}
