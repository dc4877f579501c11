/* IQ3_S with AVX-512; the block is described in iq3_s.c. */
#include "kernels/dot/a256_avx512.h"
#include "kernels/dot/tables.h"

enum { BLOCK_BYTES = 110, WITH_SHIFT = 0, WITH_MINS = 0, WITH_SIGN = 1 };

INLINE void head(const uint8_t *b, struct head *h)
{
    __m128i low = _mm_cvtsi32_si128((int)load_u32(b + 106)), nibble = _mm_set1_epi8(15);

    low = _mm_unpacklo_epi8(_mm_and_si128(low, nibble), _mm_and_si128(_mm_srli_epi16(low, 4), nibble));
    h->scales = scales_32(_mm_or_si128(_mm_add_epi8(low, low), _mm_set1_epi8(1)));
}
INLINE __m512i bytes(const uint8_t *b, int j, __mmask64 *negative)
{
    __m512i index = _mm512_cvtepu8_epi32(load128(b + 2 + 16 * j));

    *negative = load_u64(b + 74 + 8 * j);
    index = _mm512_mask_or_epi32(index, load_u16(b + 66 + 2 * j), index, _mm512_set1_epi32(256));
    return _mm512_i32gather_epi32(index, iq3s_grid, 4);
}
INLINE __m128 factors(const uint8_t *const b[4])
{
    return f16x4(b[0], b[1], b[2], b[3]);
}
INLINE __m128 min_factors(const uint8_t *const b[4])
{
    return factors(b);
}
#include "kernels/dot/a256_avx512_form.h"

void dot_iq3_s_avx512(const struct dot_job *job)
{
    job_a256(job);
}
