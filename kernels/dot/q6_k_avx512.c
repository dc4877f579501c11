/* Q6_K with AVX-512; the block is described in q6_k.c. Values are shifted by 32 to 0..63. */
#include "kernels/dot/a256_avx512.h"
#include "kernels/dot/k_scales_avx512.h"

enum { BLOCK_BYTES = 210, WITH_SHIFT = 1, WITH_MINS = 0, WITH_SIGN = 0 };

INLINE void head(const uint8_t *b, struct head *h)
{
    __m128i s = load128(b + 192);

    h->scales = _mm256_cvtepi8_epi16(s);
    h->shift = _mm256_slli_epi16(_mm256_sub_epi16(_mm256_setzero_si256(), h->scales), 5);
}
INLINE __m512i bytes(const uint8_t *b, int j, __mmask64 *negative)
{
    __m512i v = load512(b + 64 * (j / 2));
    __m256i high = load256(b + 128 + 32 * (j / 2));

    (void)negative;
    v = _mm512_and_si512(j % 2 ? _mm512_srli_epi16(v, 4) : v, _mm512_set1_epi8(15));
    return or_masked(v, j % 2 ? right(high, 0, 2) : left(high, 4, 2), 0x30);
}
INLINE __m128 factors(const uint8_t *const b[4])
{
    return f16x4(b[0] + 208, b[1] + 208, b[2] + 208, b[3] + 208);
}
INLINE __m128 min_factors(const uint8_t *const b[4])
{
    return factors(b);
}
#include "kernels/dot/a256_avx512_form.h"

void dot_q6_k_avx512(const struct dot_job *job)
{
    job_a256(job);
}
