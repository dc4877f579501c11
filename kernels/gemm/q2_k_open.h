/* How a panel of Q2_K opens; the block is described in kernels/dot/q2_k.c. */
enum { BLOCK_BYTES = 84, SUB_BLOCK = 16, WITH_MINS = 1, VALUES_SHIFT = 0, MOST = 3 };

#include "kernels/gemm/a256_form.h"
#include "kernels/gemm/a256_scales.h"

static void open_unit(const struct rows *b, struct panel *x)
{
    vec s[4], c[16];

    turn16(b, 68, s); /* the last sixteen bytes */
    f_store(x->d, f_from_f16(s[3]));
    f_store(x->dmin, f_from_f16(v_right(s[3], 16)));
    turn16(b, 0, s);
    for (int i = 0; i < 4; i++) {
        panel_scales(x, 4 * i, bits_right(s[i], 0, 15));
        panel_mins(x, 4 * i, bits_right(s[i], 4, 15));
    }
    turn64(b, 16, c);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 4; j++)
            v_store(x->w[i / 8 * 32 + 8 * j + i % 8], bits_right(c[i], 2 * j, 3));
}
