/* Q5_0, blocked, with AVX-512; the block is described in kernels/dot/q5_0.c. */
#include "kernels/gemm/gemm.h"

enum { BLOCK_BYTES = 22, WITH_MINS = 0, VALUES_SHIFT = 16 };

#include "kernels/gemm/a32_avx512_form.h"
#include "kernels/gemm/fifths_avx512.h"

static void open_units(const struct rows *b, size_t n, struct panel *x)
{
    __m512i high;

    for (size_t u = 0; u < n; u++) {
        struct rows at = rows_plus(b, u * BLOCK_BYTES);
        __m512i c[4];

        turn16(&at, 0, c);
        _mm512_store_ps(x->d[u], low_f16(c[0]));
        turn16(&at, 2, c);
        high = c[0];
        turn16(&at, 6, c);
        for (int i = 0; i < 4; i++) {
            _mm512_store_si512(x->w[u][i], or512(bits_right(c[i], 0, 15), fifths(high, 4 * i)));
            _mm512_store_si512(x->w[u][i + 4],
                               or512(bits_right(c[i], 4, 15), fifths(high, 16 + 4 * i)));
        }
    }
}

void gemm_q5_0_avx512(const struct dot_job *job)
{
    gemm_a32(job);
}
