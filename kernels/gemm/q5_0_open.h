/* How a panel of Q5_0 opens; the block is described in kernels/dot/q5_0.c. */
enum { BLOCK_BYTES = 22, WITH_MINS = 0, VALUES_SHIFT = 16, MOST = 31 };

#include "kernels/gemm/a32_form.h"

static void open_units(const struct rows *b, size_t n, struct panel *x)
{
    vec high;

    for (size_t u = 0; u < n; u++) {
        struct rows at = rows_plus(b, u * BLOCK_BYTES);
        vec c[4];

        turn16(&at, 0, c);
        f_store(x->d[u], f_from_f16(c[0]));
        turn16(&at, 2, c);
        high = c[0];
        turn16(&at, 6, c);
        for (int i = 0; i < 4; i++) {
            v_store(x->w[u][i], v_or(bits_right(c[i], 0, 15), v_four_bits(high, 4 * i)));
            v_store(x->w[u][i + 4], v_or(bits_right(c[i], 4, 15), v_four_bits(high, 16 + 4 * i)));
        }
    }
}
