/* How a panel of MXFP4 opens; the block is described in kernels/dot/mxfp4.c. */
#include "kernels/dot/tables.h"

enum { BLOCK_BYTES = 17, WITH_MINS = 0, VALUES_SHIFT = 12, MOST = 24 };

#include "kernels/gemm/a32_form.h"

/* 2^(e - 128): e8m0_half_bits, reckoned */
INLINE vec half_of(vec e)
{
    return v_if_less(e, v_set32(2), v_left_each(v_set32(0x00200000), e),
                     v_left(v_sub32(e, v_set32(1)), 23));
}

static void open_units(const struct rows *b, size_t n, struct panel *x)
{
    const vec values = v_table(e2m1_values, PANEL_SHIFT);

    for (size_t u = 0; u < n; u++) {
        struct rows at = rows_plus(b, u * BLOCK_BYTES);
        vec c[4];

        turn16(&at, 0, c);
        f_store(x->d[u], f_bits(half_of(v_and(c[0], v_set32(255)))));
        turn16(&at, 1, c);
        for (int i = 0; i < 4; i++) {
            v_store(x->w[u][i], v_look_up(values, bits_right(c[i], 0, 15)));
            v_store(x->w[u][i + 4], v_look_up(values, bits_right(c[i], 4, 15)));
        }
    }
}
