/* The usual integer sums of a block with AVX-512, included after <type>_avx2.h and the definition
 * of
 *
 *   __m512i bytes512(const uint8_t *block, const struct head *h, int j, __mmask64 *negative)
 *                                                                  values 64j.. of a block
 *
 * Bytes are unsigned as in a256_avx2_form.h. */
#include "kernels/dot/avx512.h"

/* int16 scale of each pair of bytes of values 64j..; h.scales has even sub-blocks of 16 first */
INLINE __m512i scale_of(__m256i scales, int j)
{
    const __m512i part =
        _mm512_setr_epi64(0, 0, 0x0008000800080008, 0x0008000800080008, 0x0001000100010001,
                          0x0001000100010001, 0x0009000900090009, 0x0009000900090009);

    return _mm512_permutexvar_epi16(_mm512_add_epi16(part, _mm512_set1_epi16((short)(2 * j))),
                                    _mm512_castsi256_si512(scales));
}

INLINE void block_sums(const uint8_t *block, const struct head *h, const struct act *act, size_t u,
                       const int n_tok, __m512i *acc)
{
    for (int k = 0; k < n_tok; k++) {
        acc[k] = _mm512_setzero_si512();
        if (WITH_SHIFT) {
            __m256i sum16 = load256((const int16_t *)act[k].sum + 16 * u);
            acc[k] = _mm512_zextsi256_si512(_mm256_madd_epi16(h->shift, sum16));
        }
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        __mmask64 negative = 0;
        __m512i w = bytes512(block, h, j, &negative), scale = scale_of(h->scales, j);

#pragma GCC unroll 8
        for (int k = 0; k < n_tok; k++) {
            __m512i q = load512(act[k].q + 256 * u + 64 * j);

            if (WITH_SIGN)
                q = _mm512_mask_sub_epi8(q, negative, _mm512_setzero_si512(), q);
            acc[k] = _mm512_dpwssd_epi32(acc[k], _mm512_maddubs_epi16(w, q), scale);
        }
    }
}
