/* Q4_1, blocked, with AVX-512; the block is described in kernels/dot/q4_1.c. */
#include "kernels/gemm/gemm.h"

enum { BLOCK_BYTES = 20, WITH_MINS = 1, VALUES_SHIFT = 0 };

#include "kernels/gemm/a32_avx512_form.h"

static void open_units(const struct rows *b, size_t n, struct panel *x)
{
    for (size_t u = 0; u < n; u++) {
        struct rows at = rows_plus(b, u * BLOCK_BYTES);
        __m512i c[4];

        turn16(&at, 0, c);
        _mm512_store_ps(x->d[u], low_f16(c[0]));
        _mm512_store_ps(x->m[u], high_f16(c[0]));
        turn16(&at, 4, c);
        for (size_t i = 0; i < 4; i++) {
            _mm512_store_si512(x->w[u][i], bits_right(c[i], 0, 15));
            _mm512_store_si512(x->w[u][i + 4], bits_right(c[i], 4, 15));
        }
    }
}

void gemm_q4_1_avx512(const struct dot_job *job)
{
    gemm_a32(job);
}
