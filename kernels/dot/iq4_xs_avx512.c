/* IQ4_XS with AVX-512; the block is described in iq4_xs.c. */
#include "kernels/dot/a256_avx512.h"
#include "kernels/dot/tables.h"

enum { BLOCK_BYTES = 136, WITH_SHIFT = 0, WITH_MINS = 0, WITH_SIGN = 1 };

INLINE void head(const uint8_t *b, struct head *h)
{
    __m128i low = _mm_cvtsi32_si128((int)load_u32(b + 4)), nibble = _mm_set1_epi8(15);
    uint64_t high = load_u16(b + 2);

    high = (high | high << 24) & 0x000000FF000000FF; /* two bits to each byte */
    high = (high | high << 12) & 0x000F000F000F000F;
    high = (high | high << 6) & 0x0303030303030303;
    low = _mm_unpacklo_epi8(_mm_and_si128(low, nibble), _mm_and_si128(_mm_srli_epi16(low, 4), nibble));
    low = _mm_or_si128(low, _mm_cvtsi64_si128((long long)(high << 4)));
    h->scales = scales_32(_mm_sub_epi8(low, _mm_set1_epi8(32)));
}
INLINE __m512i bytes(const uint8_t *b, int j, __mmask64 *negative)
{
    const __m512i order = _mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3);
    const __m512i shift = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4);
    const __m512i table =
        _mm512_abs_epi8(_mm512_broadcast_i32x4(load128(iq4_values))); /* entries 0..7 are negative */
    __m512i v = _mm512_permutexvar_epi64(order, _mm512_castsi256_si512(load256(b + 8 + 32 * j)));

    v = _mm512_and_si512(_mm512_srlv_epi64(v, shift), _mm512_set1_epi8(15));
    *negative = _mm512_testn_epi8_mask(v, _mm512_set1_epi8(8));
    return _mm512_shuffle_epi8(table, v);
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

void dot_iq4_xs_avx512(const struct dot_job *job)
{
    job_a256(job);
}
