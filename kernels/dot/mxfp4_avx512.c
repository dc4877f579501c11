/* MXFP4 with AVX-512. */
#include "kernels/dot/mxfp4_avx2.h"

#include "kernels/dot/avx512.h"

enum { VALUES_SHIFT = SHIFT };

INLINE void values(const uint8_t *const b[4], __m512i *low, __m512i *high)
{
    const __m512i table =
        _mm512_add_epi8(_mm512_broadcast_i32x4(load128(e2m1_values)), _mm512_set1_epi8(12));
    __m512i v = load_parts(b[0] + 1, b[1] + 1, b[2] + 1, b[3] + 1), mask = _mm512_set1_epi8(15);

    *low = _mm512_shuffle_epi8(table, _mm512_and_si512(v, mask));
    *high = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(v, 4), mask));
}

#include "kernels/dot/a32_avx512_form.h"

void dot_mxfp4_avx512(const struct dot_job *job)
{
    job_a32(job);
}
