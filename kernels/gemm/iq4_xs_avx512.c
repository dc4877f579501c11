/* IQ4_XS, blocked, with AVX-512; the block is described in kernels/dot/iq4_xs.c. */
#include "kernels/dot/tables.h"
#include "kernels/gemm/gemm.h"

enum { BLOCK_BYTES = 136, SUB_BLOCK = 32, WITH_MINS = 0, VALUES_SHIFT = 128 };

#include "kernels/gemm/a256_avx512_form.h"

static void open_unit(const struct rows *b, struct panel *x)
{
    const __m512i values = table_shifted(iq4_values, VALUES_SHIFT);
    __m512i h[4], low[2], high;

    turn16(b, 0, h); /* d, scales_h; scales_l */
    _mm512_store_ps(x->d, low_f16(h[0]));
    high = _mm512_srli_epi32(h[0], 16); /* two bits to bits 4 and 5 of each byte */
    low[0] = _mm512_and_si512(h[1], _mm512_set1_epi32(0x0F0F0F0F));
    low[1] = _mm512_and_si512(_mm512_srli_epi32(h[1], 4), _mm512_set1_epi32(0x0F0F0F0F));
    for (int s = 0; s < 8; s++) { /* nibble s, and two bits above it */
        __m512i four = _mm512_and_si512(_mm512_srli_epi32(low[s % 2], (unsigned)(8 * (s / 2))),
                                        _mm512_set1_epi32(15));
        __m512i two = _mm512_and_si512(_mm512_srli_epi32(high, (unsigned)(2 * s)),
                                       _mm512_set1_epi32(3));
        __m512i scale = _mm512_sub_epi32(or512(four, _mm512_slli_epi32(two, 4)),
                                         _mm512_set1_epi32(32));

        _mm512_store_si512(x->scale[s], scale);
    }
    for (int half = 0; half < 2; half++) {
        __m512i c[16];

        turn64(b, (size_t)(8 + 64 * half), c);
        for (int i = 0; i < 16; i++) { /* four columns for a sub-block */
            int k = 32 * half + i / 4 * 8 + i % 4;

            panel_values(x, k, _mm512_shuffle_epi8(values, bits_right(c[i], 0, 15)));
            panel_values(x, k + 4, _mm512_shuffle_epi8(values, bits_right(c[i], 4, 15)));
        }
    }
}

void gemm_iq4_xs_avx512(const struct dot_job *job)
{
    gemm_a256(job);
}
