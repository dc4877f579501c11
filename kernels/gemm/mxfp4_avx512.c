/* MXFP4, blocked, with AVX-512; the block is described in kernels/dot/mxfp4.c. */
#include "kernels/dot/tables.h"
#include "kernels/gemm/gemm.h"

enum { BLOCK_BYTES = 17, WITH_MINS = 0, VALUES_SHIFT = 12 };

#include "kernels/gemm/a32_avx512_form.h"

/* 2^(e - 128): e8m0_half_bits without a look-up */
INLINE __m512 half_of(__m512i e)
{
    __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    __m512i subnormal = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);

    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(
        normal, _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2)), subnormal));
}

static void open_units(const struct rows *b, size_t n, struct panel *x)
{
    const __m512i values = table_shifted(e2m1_values, VALUES_SHIFT);

    for (size_t u = 0; u < n; u++) {
        struct rows at = rows_plus(b, u * BLOCK_BYTES);
        __m512i c[4];

        turn16(&at, 0, c);
        _mm512_store_ps(x->d[u], half_of(_mm512_and_si512(c[0], _mm512_set1_epi32(255))));
        turn16(&at, 1, c);
        for (size_t i = 0; i < 4; i++) {
            _mm512_store_si512(x->w[u][i], _mm512_shuffle_epi8(values, bits_right(c[i], 0, 15)));
            _mm512_store_si512(x->w[u][i + 4], _mm512_shuffle_epi8(values, bits_right(c[i], 4, 15)));
        }
    }
}

void gemm_mxfp4_avx512(const struct dot_job *job)
{
    gemm_a32(job);
}
