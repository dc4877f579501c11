/* Q4_0 with AVX-512; the block is described in q4_0.c. Values are shifted by 8 to 0..15. */
#include "kernels/dot/avx512.h"

enum { BLOCK_BYTES = 18, SHIFT = 8, WITH_MINS = 0 };

INLINE void values(const uint8_t *const b[4], __m512i *low, __m512i *high)
{
    __m512i v = load_parts(b[0] + 2, b[1] + 2, b[2] + 2, b[3] + 2), mask = _mm512_set1_epi8(15);

    *low = _mm512_and_si512(v, mask);
    *high = _mm512_and_si512(_mm512_srli_epi16(v, 4), mask);
}
INLINE __m128 factors(const uint8_t *const b[4])
{
    return f16x4(b[0], b[1], b[2], b[3]);
}
INLINE __m128 min_factors(const uint8_t *const b[4])
{
    return factors(b);
}
#include "kernels/dot/a32_avx512_form.h"

void dot_q4_0_avx512(const struct dot_job *job)
{
    job_a32(job);
}
