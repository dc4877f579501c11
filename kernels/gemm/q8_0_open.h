/* How a panel of Q8_0 opens; the block is described in kernels/dot/q8_0.c. */
enum { BLOCK_BYTES = 34, WITH_MINS = 0, VALUES_SHIFT = 128, MOST = 255 };

#include "kernels/gemm/a32_form.h"

static void open_units(const struct rows *b, size_t n, struct panel *x)
{
    for (size_t u = 0; u < n; u++) {
        struct rows at = rows_plus(b, u * BLOCK_BYTES);
        vec c[4];

        turn16(&at, 0, c);
        f_store(x->d[u], f_from_f16(c[0]));
        for (int h = 0; h < 2; h++) {
            turn16(&at, (size_t)(2 + 16 * h), c);
            for (int i = 0; i < 4; i++)
                v_store(x->w[u][4 * h + i], v_xor(c[i], v_set8(PANEL_SHIFT)));
        }
    }
}
