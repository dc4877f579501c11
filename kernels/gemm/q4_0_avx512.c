/* Q4_0, blocked, with AVX-512; the block is described in kernels/dot/q4_0.c. */
#include "kernels/gemm/gemm.h"

enum { BLOCK_BYTES = 18, WITH_MINS = 0, VALUES_SHIFT = 8 };

#include "kernels/gemm/a32_avx512_form.h"

static void open_units(const struct rows *b, size_t n, struct panel *x)
{
    for (size_t u = 0; u < n; u++) {
        struct rows at = rows_plus(b, u * BLOCK_BYTES);
        __m512i c[4];

        turn16(&at, 0, c);
        _mm512_store_ps(x->d[u], low_f16(c[0]));
        turn16(&at, 2, c);
        for (size_t i = 0; i < 4; i++) {
            _mm512_store_si512(x->w[u][i], bits_right(c[i], 0, 15));
            _mm512_store_si512(x->w[u][i + 4], bits_right(c[i], 4, 15));
        }
    }
}

void gemm_q4_0_avx512(const struct dot_job *job)
{
    gemm_a32(job);
}
