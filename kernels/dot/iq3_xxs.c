/* IQ3_XXS: 98 bytes for 256 values, 8 sub-blocks of 32.
 * @0 f16 d, @2 qs[64]: grid index of four values each, @66 u32 B[8]: per sub-block four times 7
 * sign bits for eight values, and the scale 2x + 1 in the top four. D = d/4. */
#include "kernels/dot/dot.h"
#include "kernels/dot/tables.h"
#include "kernels/num.h"

void unit_iq3_xxs(const uint8_t *row, size_t u, struct unit *x)
{
    const uint8_t *b = row + 98 * u;

    x->d = f16_to_f32(load_u16(b)) * 0.25f;
    for (int i = 0; i < 256; i++) {
        uint32_t bits = load_u32(b + 66 + 4 * (i / 32));
        int scale = (int)(2 * (bits >> 28) + 1), signs = sign_masks[bits >> 7 * (i / 8 % 4) & 127];
        int v = scale * grid_byte(iq3xxs_grid[b[2 + i / 4]], i % 4);

        x->w[i] = (int16_t)(signs >> i % 8 & 1 ? -v : v);
    }
}
