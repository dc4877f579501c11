/* How a panel of Q5_K opens; the block is described in kernels/dot/q5_k.c. */
enum { BLOCK_BYTES = 176, SUB_BLOCK = 32, WITH_MINS = 1, VALUES_SHIFT = 0, MOST = 31 };

#include "kernels/gemm/a256_form.h"
#include "kernels/gemm/k_heads.h"

/* bit j of each byte to bit 4 */
INLINE vec fifth(vec high, int j)
{
    return j < 4 ? bits_left(high, 4 - j, 16) : bits_right(high, j - 4, 16);
}

static void open_unit(const struct rows *b, struct panel *x)
{
    vec high[16], c[16];

    k_heads(b, x);
    turn64(b, 16, high); /* the first eight columns are meant */
    for (int h = 0; h < 2; h++) {
        turn64(b, (size_t)(48 + 64 * h), c);
        for (int i = 0; i < 16; i++) { /* eight columns for two sub-blocks */
            int j = 4 * h + i / 8 * 2, k = 8 * j + i % 8;

            v_store(x->w[k], v_or(bits_right(c[i], 0, 15), fifth(high[i % 8], j)));
            v_store(x->w[k + 8], v_or(bits_right(c[i], 4, 15), fifth(high[i % 8], j + 1)));
        }
    }
}
