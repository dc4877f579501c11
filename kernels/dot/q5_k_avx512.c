/* Q5_K with AVX-512; the block is described in q5_k.c. */
#include "kernels/dot/a256_avx512.h"
#include "kernels/dot/k_scales_avx512.h"

enum { BLOCK_BYTES = 176, WITH_SHIFT = 0, WITH_MINS = 1, WITH_SIGN = 0 };

INLINE void head(const uint8_t *b, struct head *h)
{
    k_head(b + 4, h);
}
INLINE __m512i bytes(const uint8_t *b, int j, __mmask64 *negative)
{
    __m512i v = _mm512_and_si512(right(load256(b + 48 + 32 * j), 0, 4), _mm512_set1_epi8(15));
    __m256i high = load256(b + 16); /* bits 2j and 2j + 1 to bit 4 */

    (void)negative;
    return or_masked(v, j < 2 ? left(high, 4 - 2 * j, 3 - 2 * j) : right(high, 2 * j - 4, 2 * j - 3),
                     16);
}
INLINE __m128 factors(const uint8_t *const b[4])
{
    return f16x4(b[0], b[1], b[2], b[3]);
}
INLINE __m128 min_factors(const uint8_t *const b[4])
{
    return f16x4(b[0] + 2, b[1] + 2, b[2] + 2, b[3] + 2);
}
#include "kernels/dot/a256_avx512_form.h"

void dot_q5_k_avx512(const struct dot_job *job)
{
    job_a256(job);
}
