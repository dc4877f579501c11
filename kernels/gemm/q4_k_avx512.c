/* Q4_K, blocked, with AVX-512; the block is described in kernels/dot/q4_k.c. */
#include "kernels/gemm/gemm.h"

enum { BLOCK_BYTES = 144, SUB_BLOCK = 32, WITH_MINS = 1, VALUES_SHIFT = 0 };

#include "kernels/gemm/a256_avx512_form.h"
#include "kernels/gemm/k_heads_avx512.h"

static void open_unit(const struct rows *b, struct panel *x)
{
    k_heads(b, x);
    for (int h = 0; h < 2; h++) {
        __m512i c[16];

        turn64(b, (size_t)(16 + 64 * h), c);
        for (int i = 0; i < 16; i++) { /* eight columns for two sub-blocks */
            int k = 32 * h + i + i / 8 * 8;

            panel_values(x, k, bits_right(c[i], 0, 15));
            panel_values(x, k + 8, bits_right(c[i], 4, 15));
        }
    }
}

void gemm_q4_k_avx512(const struct dot_job *job)
{
    gemm_a256(job);
}
