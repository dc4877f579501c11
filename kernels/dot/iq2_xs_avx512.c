/* IQ2_XS with AVX-512; the block is described in iq2_xs.c. */
#include "kernels/dot/a256_avx512.h"
#include "kernels/dot/tables.h"

enum { BLOCK_BYTES = 74, WITH_SHIFT = 0, WITH_MINS = 0, WITH_SIGN = 1 };

INLINE void head(const uint8_t *b, struct head *h)
{
    __m128i v = _mm_cvtsi64_si128((long long)load_u64(b + 66)), low = _mm_set1_epi8(15), s;

    s = _mm_unpacklo_epi8(_mm_and_si128(v, low), _mm_and_si128(_mm_srli_epi16(v, 4), low));
    h->scales = _mm256_cvtepi8_epi16(_mm_or_si128(_mm_add_epi8(s, s), _mm_set1_epi8(1)));
}
INLINE __m512i bytes(const uint8_t *b, int j, __mmask64 *negative)
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
INLINE __m128 factors(const uint8_t *const b[4])
{
    return _mm_mul_ps(f16x4(b[0], b[1], b[2], b[3]), _mm_set1_ps(0.125f));
}
INLINE __m128 min_factors(const uint8_t *const b[4])
{
    return factors(b);
}
#include "kernels/dot/a256_avx512_form.h"

void dot_iq2_xs_avx512(const struct dot_job *job)
{
    job_a256(job);
}
