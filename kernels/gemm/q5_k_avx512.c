/* Q5_K, blocked, with AVX-512; the block is described in kernels/dot/q5_k.c. */
#include "kernels/gemm/gemm.h"

enum { BLOCK_BYTES = 176, SUB_BLOCK = 32, WITH_MINS = 1, VALUES_SHIFT = 0 };

#include "kernels/gemm/a256_avx512_form.h"
#include "kernels/gemm/k_heads_avx512.h"

/* bit j of each byte to bit 4 */
INLINE __m512i fifth(__m512i high, int j)
{
    return j < 4 ? bits_left(high, 4 - j, 16) : bits_right(high, j - 4, 16);
}

static void open_unit(const struct rows *b, struct panel *x)
{
    __m512i high[16], c[16];

    k_heads(b, x);
    turn64(b, 16, high); /* 32 bytes of fifth bits, then the first half of the nibbles' first 64 */
    for (int h = 0; h < 2; h++) {
        turn64(b, (size_t)(48 + 64 * h), c);
        for (int i = 0; i < 16; i++) { /* eight columns for two sub-blocks */
            int j = 4 * h + i / 8 * 2, k = 8 * j + i % 8;

            panel_values(x, k, or512(bits_right(c[i], 0, 15), fifth(high[i % 8], j)));
            panel_values(x, k + 8, or512(bits_right(c[i], 4, 15), fifth(high[i % 8], j + 1)));
        }
    }
}

void gemm_q5_k_avx512(const struct dot_job *job)
{
    gemm_a256(job);
}
