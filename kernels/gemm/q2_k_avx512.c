/* Q2_K, blocked, with AVX-512; the block is described in kernels/dot/q2_k.c. */
#include "kernels/gemm/gemm.h"

enum { BLOCK_BYTES = 84, SUB_BLOCK = 16, WITH_MINS = 1, VALUES_SHIFT = 0 };

#include "kernels/gemm/a256_avx512_form.h"

static void open_unit(const struct rows *b, struct panel *x)
{
    __m512i s[4], c[16];

    turn16(b, 68, s); /* the last sixteen bytes */
    _mm512_store_ps(x->d, low_f16(s[3]));
    _mm512_store_ps(x->dmin, high_f16(s[3]));
    turn16(b, 0, s);
    for (int i = 0; i < 4; i++) {
        panel_scales(x, 4 * i, bits_right(s[i], 0, 15));
        panel_mins(x, 4 * i, bits_right(s[i], 4, 15));
    }
    turn64(b, 16, c);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 4; j++)
            panel_values(x, i / 8 * 32 + 8 * j + i % 8, bits_right(c[i], 2 * j, 3));
}

void gemm_q2_k_avx512(const struct dot_job *job)
{
    gemm_a256(job);
}
