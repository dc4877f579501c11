/* IQ4_XS with AVX-512. 64 bytes are four sub-blocks: the low nibbles are the first halves of their
 * values, the high ones the second halves. With the vector's bytes in the same order each part of a
 * register is one sub-block, so that one multiplication applies four scales. Values are shifted by
 * 128 to 1..241: four products at once cannot saturate here. */
#include "kernels/dot/iq4_xs_avx2.h"

#include "kernels/dot/avx512.h"

INLINE void block_sums(const uint8_t *block, const struct head *h, const struct act *act, size_t u,
                       const int n_tok, __m512i *acc)
{
    const __m512i table =
        _mm512_xor_si512(_mm512_broadcast_i32x4(load128(iq4_values)), _mm512_set1_epi8(-128));
    const __m512i nibble = _mm512_set1_epi8(15);
    const __m512i part = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const __m256i shift = shift_signed(h->scales);
    const __m512i scales =
        _mm512_castsi256_si512(_mm256_cvtepi16_epi32(_mm256_castsi256_si128(h->scales)));

    for (int k = 0; k < n_tok; k++) {
        __m256i sum16 = load256((const int16_t *)act[k].sum + 16 * u);
        acc[k] = _mm512_zextsi256_si512(_mm256_madd_epi16(shift, sum16));
    }
#pragma GCC unroll 2
    for (int j = 0; j < 2; j++) {
        __m512i v = load512(block + 8 + 64 * j);
        __m512i first = _mm512_shuffle_epi8(table, _mm512_and_si512(v, nibble));
        __m512i second =
            _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(v, 4), nibble));
        __m512i scale =
            _mm512_permutexvar_epi32(_mm512_add_epi32(part, _mm512_set1_epi32(4 * j)), scales);

#pragma GCC unroll 8
        for (int k = 0; k < n_tok; k++) {
            __m512i a = load512(act[k].q + 256 * u + 128 * j);
            __m512i b = load512(act[k].q + 256 * u + 128 * j + 64);
            __m512i s = _mm512_setzero_si512();

            s = _mm512_dpbusd_epi32(s, first, _mm512_shuffle_i32x4(a, b, 0x88));
            s = _mm512_dpbusd_epi32(s, second, _mm512_shuffle_i32x4(a, b, 0xDD));
            acc[k] = _mm512_add_epi32(acc[k], _mm512_mullo_epi32(s, scale));
        }
    }
}

#include "kernels/dot/a256_avx512_form.h"

void dot_iq4_xs_avx512(const struct dot_job *job)
{
    job_a256(job);
}
