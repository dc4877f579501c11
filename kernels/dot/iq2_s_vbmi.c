/* IQ2_S where bytes can be permuted; the block is described in iq2_s.c. */
#include "kernels/dot/grid8_vbmi.h"

enum { BLOCK_BYTES = 82, SUB_BLOCK = 16 };
#define FACTOR 0.125f

INLINE int sign_rule(int i)
{
    return 1 << i;
}
INLINE void begin(const uint8_t *const b[TOGETHER], struct opened *x)
{
    const __m512i place = pairs_64(0x0E0C0A0806040200, 0x1E1C1A1816141210, 0x2E2C2A2826242220,
                                   0x3E3C3A3836343230);
    __m512i high = _mm512_multishift_epi64_epi8(place, two_words(b[0] + 66, b[1] + 66));

    x->index = bytes_of_two(b[0] + 2, b[1] + 2);
    x->signs = bytes_of_two(b[0] + 34, b[1] + 34);
    x->at = bits_of(x->index);
    x->at.bit8 = _mm512_test_epi8_mask(high, _mm512_set1_epi8(1));
    x->at.bit9 = _mm512_test_epi8_mask(high, _mm512_set1_epi8(2));
    x->scale = scales_of_two(b[0] + 74, b[1] + 74);
}
INLINE void open_part(struct opened *x, int j)
{
    __m512i v = lookup_512(iq2s_planes + 64 * j, x->index, &x->at);

    if (j % 2)
        x->levels[j / 2] = _mm512_mask_mov_epi8(x->half, x->at.bit9, v);
    else
        x->half = v;
}

#include "kernels/dot/grid8_vbmi_sums.h"

#include "kernels/dot/few_vbmi_form.h"

void dot_iq2_s_vbmi(const struct dot_job *job)
{
    job_few(job, dot_iq2_s_avx512);
}
