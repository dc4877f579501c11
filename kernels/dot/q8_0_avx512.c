/* Q8_0 with AVX-512. */
#include "kernels/dot/q8_0_avx2.h"

#include "kernels/dot/avx512.h"

enum { VALUES_SHIFT = 128 };

INLINE void values(const uint8_t *const b[4], __m512i *low, __m512i *high)
{
    const __m512i flip = _mm512_set1_epi8(-128);

    *low = _mm512_xor_si512(load_parts(b[0] + 2, b[1] + 2, b[2] + 2, b[3] + 2), flip);
    *high = _mm512_xor_si512(load_parts(b[0] + 18, b[1] + 18, b[2] + 18, b[3] + 18), flip);
}

#include "kernels/dot/a32_avx512_form.h"

void dot_q8_0_avx512(const struct dot_job *job)
{
    job_a32(job);
}
