/* How a panel of Q6_K opens; the block is described in kernels/dot/q6_k.c. */
enum { BLOCK_BYTES = 210, SUB_BLOCK = 16, WITH_MINS = 0, VALUES_SHIFT = 32, MOST = 63 };

#include "kernels/gemm/a256_form.h"
#include "kernels/gemm/a256_scales.h"

static void open_unit(const struct rows *b, struct panel *x)
{
    vec s[4], high[16];

    turn16(b, 194, s); /* the last sixteen bytes */
    f_store(x->d, f_from_f16(v_right(s[3], 16)));
    turn16(b, 192, s);
    for (int i = 0; i < 4; i++)
        panel_scales(x, 4 * i, s[i]);
    turn64(b, 128, high);
    for (int h = 0; h < 2; h++) {
        vec low[16];

        turn64(b, (size_t)(64 * h), low);
        for (int i = 0; i < 8; i++) { /* values 4i.. of the half's four quarters */
            vec two = high[8 * h + i];
            int k = 32 * h + i;

            v_store(x->w[k], v_or(bits_right(low[i], 0, 15), bits_left(two, 4, 0x30)));
            v_store(x->w[k + 8], v_or(bits_right(low[i + 8], 0, 15), bits_left(two, 2, 0x30)));
            v_store(x->w[k + 16], v_or(bits_right(low[i], 4, 15), bits_left(two, 0, 0x30)));
            v_store(x->w[k + 24], v_or(bits_right(low[i + 8], 4, 15), bits_right(two, 2, 0x30)));
        }
    }
}
