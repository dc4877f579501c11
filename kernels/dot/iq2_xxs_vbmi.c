/* IQ2_XXS where bytes can be permuted; the block is described in iq2_xxs.c. */
#include "kernels/dot/grid8_vbmi.h"

enum { BLOCK_BYTES = 66, SUB_BLOCK = 32 };
#define FACTOR 0.125f

/* seven bits, the eighth sign is their parity */
INLINE int sign_rule(int i)
{
    return i < 7 ? 1 << i : 0x7F;
}
INLINE void begin(const uint8_t *const b[TOGETHER], struct opened *x)
{
    const __m512i place = _mm512_set1_epi64(0x352E2720150E0700); /* seven on, in either half */
    __m512 q = _mm512_loadu_ps(b[0] + 2), r = _mm512_loadu_ps(b[1] + 2);
    __m512i bits = _mm512_castps_si512(_mm512_shuffle_ps(q, r, 0xDD));

    x->index = _mm512_castps_si512(_mm512_shuffle_ps(q, r, 0x88));
    x->signs = _mm512_multishift_epi64_epi8(place, bits);
    x->at = bits_of(x->index);
    x->scale = and_or(_mm512_srli_epi32(bits, 27), _mm512_set1_epi32(0x1E), _mm512_set1_epi32(1));
}
INLINE void open_part(struct opened *x, int j)
{
    if (j % 2 == 0)
        x->levels[j / 2] = lookup_256(iq2xxs_planes + 16 * j, x->index, &x->at);
}

#include "kernels/dot/grid8_vbmi_sums.h"

#include "kernels/dot/few_vbmi_form.h"

void dot_iq2_xxs_vbmi(const struct dot_job *job)
{
    job_few(job, dot_iq2_xxs_avx512);
}
