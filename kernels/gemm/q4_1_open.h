/* How a panel of Q4_1 opens; the block is described in kernels/dot/q4_1.c. */
enum { BLOCK_BYTES = 20, WITH_MINS = 1, VALUES_SHIFT = 0, MOST = 15 };

#include "kernels/gemm/a32_form.h"

static void open_units(const struct rows *b, size_t n, struct panel *x)
{
    for (size_t u = 0; u < n; u++) {
        struct rows at = rows_plus(b, u * BLOCK_BYTES);
        vec c[4];

        turn16(&at, 0, c);
        f_store(x->d[u], f_from_f16(c[0]));
        f_store(x->m[u], f_from_f16(v_right(c[0], 16)));
        turn16(&at, 4, c);
        for (int i = 0; i < 4; i++) {
            v_store(x->w[u][i], bits_right(c[i], 0, 15));
            v_store(x->w[u][i + 4], bits_right(c[i], 4, 15));
        }
    }
}
