/* How a panel of IQ4_XS opens; the block is described in kernels/dot/iq4_xs.c. */
#include "kernels/dot/tables.h"

enum { BLOCK_BYTES = 136, SUB_BLOCK = 32, WITH_MINS = 0, VALUES_SHIFT = 128, MOST = 255 };

#include "kernels/gemm/a256_form.h"

static void open_unit(const struct rows *b, struct panel *x)
{
    const vec values = v_table(iq4_values, PANEL_SHIFT);
    vec h[4], low[2], high;

    turn16(b, 0, h); /* d and scales_h, then scales_l */
    f_store(x->d, f_from_f16(h[0]));
    high = v_right(h[0], 16);
    low[0] = bits_right(h[1], 0, 15);
    low[1] = bits_right(h[1], 4, 15);
    for (int s = 0; s < 8; s++) { /* nibble s, and two bits above it */
        vec four = v_and(v_right(low[s % 2], 8 * (s / 2)), v_set32(15));
        vec two = v_and(v_right(high, 2 * s), v_set32(3));

        panel_scale(x, s, v_sub32(v_or(four, v_left(two, 4)), v_set32(32)));
    }
    for (int half = 0; half < 2; half++) {
        vec c[16];

        turn64(b, (size_t)(8 + 64 * half), c);
        for (int i = 0; i < 16; i++) { /* four columns for a sub-block */
            int k = 32 * half + i / 4 * 8 + i % 4;

            v_store(x->w[k], v_look_up(values, bits_right(c[i], 0, 15)));
            v_store(x->w[k + 4], v_look_up(values, bits_right(c[i], 4, 15)));
        }
    }
}
