/* Q5_K with AVX-512. */
#include "kernels/dot/bits_avx512.h"
#include "kernels/dot/q5_k_avx2.h"

/* values 64j.. */
INLINE __m512i bytes512(const uint8_t *b, const struct head *h, int j, __mmask64 *negative)
{
    __m512i v = _mm512_and_si512(right(load256(b + 48 + 32 * j), 0, 4), _mm512_set1_epi8(15));
    __m256i high = load256(b + 16); /* bits 2j and 2j + 1 to bit 4 */

    (void)h;
    (void)negative;
    return or_masked(
        v, j < 2 ? left(high, 4 - 2 * j, 3 - 2 * j) : right(high, 2 * j - 4, 2 * j - 3), 16);
}

#include "kernels/dot/block_avx512.h"

#include "kernels/dot/a256_avx512_form.h"

void dot_q5_k_avx512(const struct dot_job *job)
{
    job_a256(job);
}
