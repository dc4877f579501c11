/* Q6_K with AVX-512. */
#include "kernels/dot/bits_avx512.h"
#include "kernels/dot/q6_k_avx2.h"

/* values 64j.. */
INLINE __m512i bytes512(const uint8_t *b, const struct head *h, int j, __mmask64 *negative)
{
    __m512i v = load512(b + 64 * (j / 2));
    __m256i high = load256(b + 128 + 32 * (j / 2));

    (void)h;
    (void)negative;
    v = _mm512_and_si512(j % 2 ? _mm512_srli_epi16(v, 4) : v, _mm512_set1_epi8(15));
    return or_masked(v, j % 2 ? right(high, 0, 2) : left(high, 4, 2), 0x30);
}

#include "kernels/dot/block_avx512.h"

#include "kernels/dot/a256_avx512_form.h"

void dot_q6_k_avx512(const struct dot_job *job)
{
    job_a256(job);
}
