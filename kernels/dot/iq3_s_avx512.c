/* IQ3_S with AVX-512. */
#include "kernels/dot/iq3_s_avx2.h"

#include <immintrin.h>

/* values 64j.. */
INLINE __m512i bytes512(const uint8_t *b, int j, __mmask64 *negative)
{
    __m512i index = _mm512_cvtepu8_epi32(load128(b + 2 + 16 * j));

    *negative = load_u64(b + 74 + 8 * j);
    index = _mm512_mask_or_epi32(index, load_u16(b + 66 + 2 * j), index, _mm512_set1_epi32(256));
    return _mm512_i32gather_epi32(index, iq3s_grid, 4);
}

#include "kernels/dot/a256_avx512_form.h"

void dot_iq3_s_avx512(const struct dot_job *job)
{
    job_a256(job);
}
