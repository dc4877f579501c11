/* Q6_K, blocked, with AVX-512; the block is described in kernels/dot/q6_k.c. */
#include "kernels/gemm/gemm.h"

enum { BLOCK_BYTES = 210, SUB_BLOCK = 16, WITH_MINS = 0, VALUES_SHIFT = 32 };

#include "kernels/gemm/a256_avx512_form.h"

static void open_unit(const struct rows *b, struct panel *x)
{
    __m512i s[4], high[16];

    turn16(b, 194, s); /* the last sixteen bytes */
    _mm512_store_ps(x->d, high_f16(s[3]));
    turn16(b, 192, s);
    for (int i = 0; i < 4; i++)
        panel_scales(x, 4 * i, s[i]);
    turn64(b, 128, high);
    for (int h = 0; h < 2; h++) {
        __m512i low[16];

        turn64(b, (size_t)(64 * h), low);
        for (int i = 0; i < 8; i++) { /* values 4i.. of the half's four quarters */
            __m512i two = high[8 * h + i];
            int k = 32 * h + i;

            panel_values(x, k, or512(bits_right(low[i], 0, 15), bits_left(two, 4, 0x30)));
            panel_values(x, k + 8, or512(bits_right(low[i + 8], 0, 15), bits_left(two, 2, 0x30)));
            panel_values(x, k + 16, or512(bits_right(low[i], 4, 15), bits_left(two, 0, 0x30)));
            panel_values(x, k + 24, or512(bits_right(low[i + 8], 4, 15), bits_right(two, 2, 0x30)));
        }
    }
}

void gemm_q6_k_avx512(const struct dot_job *job)
{
    gemm_a256(job);
}
