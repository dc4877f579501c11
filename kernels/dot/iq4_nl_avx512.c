/* IQ4_NL with AVX-512. */
#include "kernels/dot/iq4_nl_avx2.h"

#include "kernels/dot/avx512.h"

enum { VALUES_SHIFT = 128 };

INLINE void values(const uint8_t *const b[4], __m512i *low, __m512i *high)
{
    const __m512i table =
        _mm512_add_epi8(_mm512_broadcast_i32x4(load128(iq4_values)), _mm512_set1_epi8(-128));
    __m512i v = load_parts(b[0] + 2, b[1] + 2, b[2] + 2, b[3] + 2), mask = _mm512_set1_epi8(15);

    *low = _mm512_shuffle_epi8(table, _mm512_and_si512(v, mask));
    *high = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(v, 4), mask));
}

#include "kernels/dot/a32_avx512_form.h"

void dot_iq4_nl_avx512(const struct dot_job *job)
{
    job_a32(job);
}
