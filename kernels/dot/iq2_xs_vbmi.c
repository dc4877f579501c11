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
    const __m512i halves = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
    __m512i q = _mm512_shuffle_epi8(load512(b[0] + 2), halves);
    __m512i r = _mm512_shuffle_epi8(load512(b[1] + 2), halves);

    x->index = _mm512_unpacklo_epi64(q, r);
    x->signs = _mm512_unpackhi_epi64(q, r);
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
