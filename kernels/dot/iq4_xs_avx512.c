/* IQ4_XS with AVX-512. */
#include "kernels/dot/iq4_xs_avx2.h"

#include <immintrin.h>

/* values 64j.. */
INLINE __m512i bytes512(const uint8_t *b, const struct head *h, int j, __mmask64 *negative)
{
    const __m512i order = _mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3);
    const __m512i shift = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4);
    const __m512i table = _mm512_abs_epi8(
        _mm512_broadcast_i32x4(load128(iq4_values))); /* entries 0..7 are negative */
    __m512i v = _mm512_permutexvar_epi64(order, _mm512_castsi256_si512(load256(b + 8 + 32 * j)));

    (void)h;
    v = _mm512_and_si512(_mm512_srlv_epi64(v, shift), _mm512_set1_epi8(15));
    *negative = _mm512_testn_epi8_mask(v, _mm512_set1_epi8(8));
    return _mm512_shuffle_epi8(table, v);
}

#include "kernels/dot/a256_avx512_form.h"

void dot_iq4_xs_avx512(const struct dot_job *job)
{
    job_a256(job);
}
