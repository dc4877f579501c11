/* Q4_K with AVX-512. */
#include "kernels/dot/bits_avx512.h"
#include "kernels/dot/q4_k_avx2.h"

/* values 64j.. */
INLINE __m512i bytes512(const uint8_t *b, const struct head *h, int j, __mmask64 *negative)
{
    (void)h;
    (void)negative;
    return _mm512_and_si512(right(load256(b + 16 + 32 * j), 0, 4), _mm512_set1_epi8(15));
}

#include "kernels/dot/block_avx512.h"

#include "kernels/dot/a256_avx512_form.h"

void dot_q4_k_avx512(const struct dot_job *job)
{
    job_a256(job);
}
