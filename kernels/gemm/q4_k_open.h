/* How a panel of Q4_K opens; the block is described in kernels/dot/q4_k.c. */
enum { BLOCK_BYTES = 144, SUB_BLOCK = 32, WITH_MINS = 1, VALUES_SHIFT = 0, MOST = 15 };

#include "kernels/gemm/a256_form.h"
#include "kernels/gemm/k_heads.h"

static void open_unit(const struct rows *b, struct panel *x)
{
    k_heads(b, x);
    for (int h = 0; h < 2; h++) {
        vec c[16];

        turn64(b, (size_t)(16 + 64 * h), c);
        for (int i = 0; i < 16; i++) { /* eight columns for two sub-blocks */
            int k = 32 * h + i + i / 8 * 8;

            v_store(x->w[k], bits_right(c[i], 0, 15));
            v_store(x->w[k + 8], bits_right(c[i], 4, 15));
        }
    }
}
