/* IQ2_XS with AVX-512. */
#include "kernels/dot/iq2_xs_avx2.h"

#include <immintrin.h>

/* values 64j.. */
INLINE __m512i bytes512(const uint8_t *b, int j, __mmask64 *negative)
{
    const __m128i odd = _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, /* parity of a nibble */
                                      -128, 0, 0, -128, 0, -128, -128, 0);
    __m128i q = load128(b + 2 + 16 * j), s = _mm_srli_epi16(q, 9), nibble;

    nibble = _mm_and_si128(_mm_xor_si128(s, _mm_srli_epi16(s, 4)), _mm_set1_epi16(15));
    s = _mm_or_si128(s, _mm_and_si128(_mm_shuffle_epi8(odd, nibble), _mm_set1_epi16(0x80)));
    *negative = (uint64_t)_mm_cvtsi128_si64(_mm_packus_epi16(s, s));
    return _mm512_i64gather_epi64(
        _mm512_cvtepu16_epi64(_mm_and_si128(q, _mm_set1_epi16(511))), iq2xs_grid, 8);
}

#include "kernels/dot/a256_avx512_form.h"

void dot_iq2_xs_avx512(const struct dot_job *job)
{
    job_a256(job);
}
