/* IQ2_XS where bytes can be permuted; the block is described in iq2_xs.c. */
#include "kernels/dot/grid8_vbmi.h"

enum { BLOCK_BYTES = 74, SUB_BLOCK = 16 };
#define FACTOR 0.125f

/* seven bits above the index's ninth, the eighth sign is their parity */
INLINE int sign_rule(int i)
{
    return i < 7 ? 2 << i : 0xFE;
}
INLINE void begin(const uint8_t *const b[TOGETHER], struct opened *x)
{
    __m512i q = load512(b[0] + 2), r = load512(b[1] + 2), byte = _mm512_set1_epi16(255);

    x->index = _mm512_packus_epi16(_mm512_and_si512(q, byte), _mm512_and_si512(r, byte));
    x->signs = _mm512_packus_epi16(_mm512_srli_epi16(q, 8), _mm512_srli_epi16(r, 8));
    x->at = bits_of(x->index);
    x->at.bit8 = _mm512_test_epi8_mask(x->signs, _mm512_set1_epi8(1));
    x->scale = scales_of_two(b[0] + 66, b[1] + 66);
}
INLINE void open_part(struct opened *x, int j)
{
    __m512i v = lookup_256(iq2xs_planes + 32 * j, x->index, &x->at);

    if (j % 2)
        x->levels[j / 2] = _mm512_mask_mov_epi8(x->half, x->at.bit8, v);
    else
        x->half = v;
}

#include "kernels/dot/grid8_vbmi_sums.h"

#include "kernels/dot/few_vbmi_form.h"

void dot_iq2_xs_vbmi(const struct dot_job *job)
{
    job_few(job, dot_iq2_xs_avx512);
}
