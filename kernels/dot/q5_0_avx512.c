/* Q5_0 with AVX-512. */
#include "kernels/dot/q5_0_avx2.h"

#include "kernels/dot/avx512.h"

enum { VALUES_SHIFT = SHIFT };

/* half of four units' fifth bits: a unit's sixteen in each part */
INLINE __mmask64 fifth_bits(const uint8_t *const b[4], int half)
{
    uint64_t low = load_u16(b[0] + 2 + half) | (uint32_t)load_u16(b[1] + 2 + half) << 16;
    uint64_t high = load_u16(b[2] + 2 + half) | (uint32_t)load_u16(b[3] + 2 + half) << 16;

    return low | high << 32;
}

INLINE void values(const uint8_t *const b[4], __m512i *low, __m512i *high)
{
    const __m512i sixteen = _mm512_set1_epi8(16);
    __m512i v = load_parts(b[0] + 6, b[1] + 6, b[2] + 6, b[3] + 6), mask = _mm512_set1_epi8(15);
    __m512i first = _mm512_and_si512(v, mask);
    __m512i second = _mm512_and_si512(_mm512_srli_epi16(v, 4), mask);

    *low = _mm512_mask_add_epi8(first, fifth_bits(b, 0), first, sixteen);
    *high = _mm512_mask_add_epi8(second, fifth_bits(b, 2), second, sixteen);
}

#include "kernels/dot/a32_avx512_form.h"

void dot_q5_0_avx512(const struct dot_job *job)
{
    job_a32(job);
}
