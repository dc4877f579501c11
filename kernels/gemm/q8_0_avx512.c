/* Q8_0, blocked, with AVX-512; the block is described in kernels/dot/q8_0.c. */
#include "kernels/gemm/gemm.h"

enum { BLOCK_BYTES = 34, WITH_MINS = 0, VALUES_SHIFT = 128 };

#include "kernels/gemm/a32_avx512_form.h"

static void open_units(const struct rows *b, size_t n, struct panel *x)
{
    for (size_t u = 0; u < n; u++) {
        struct rows at = rows_plus(b, u * BLOCK_BYTES);
        __m512i c[4];

        turn16(&at, 0, c);
        _mm512_store_ps(x->d[u], low_f16(c[0]));
        for (size_t h = 0; h < 2; h++) {
            turn16(&at, 2 + 16 * h, c);
            for (size_t i = 0; i < 4; i++)
                _mm512_store_si512(x->w[u][4 * h + i],
                                   _mm512_xor_si512(c[i], _mm512_set1_epi8(-128)));
        }
    }
}

void gemm_q8_0_avx512(const struct dot_job *job)
{
    gemm_a32(job);
}
