/* IQ3_S where bytes can be permuted; the block is described in iq3_s.c. */
#include "kernels/dot/grid4_vbmi.h"

enum { BLOCK_BYTES = 110, OFFSET = 15 };
#define FACTOR 1.0f

INLINE void begin(const uint8_t *const b[TOGETHER], struct opened *x)
{
    /* a sub-block's nibble, one place early, so that it is doubled; a word has all 32 bits twice */
    const __m512i place =
        _mm512_setr_epi64(0x3F0000003F, 0x0300000003, 0x0700000007, 0x0B0000000B, 0x0F0000000F,
                          0x1300000013, 0x1700000017, 0x1B0000001B);
    const __m512i fours = _mm512_set1_epi64(0x1C1814100C080400);

    x->index = load512(b[0] + 2);
    x->at = bits_of(x->index);
    x->at.bit8 = (__mmask64)load_u64(b[0] + 66);
    x->signs =
        _mm512_multishift_epi64_epi8(fours, _mm512_cvtepu32_epi64(load256(b[0] + 74)));
    x->scale = _mm512_multishift_epi64_epi8(place, _mm512_set1_epi32((int)load_u32(b[0] + 106)));
    x->scale = and_or(x->scale, _mm512_set1_epi32(0x1E), _mm512_set1_epi32(1));
}
INLINE void open_part(struct opened *x, int j)
{
    __m512i v = lookup_256(iq3s_planes + 32 * j, x->index, &x->at);

    if (j % 2)
        x->pairs[j / 2] = _mm512_mask_mov_epi8(x->half, x->at.bit8, v);
    else
        x->half = v;
}
/* A nibble n of a pair stands for the odd number 2n - 15, and 15 - n for its opposite: the sign turns
 * its bits over. What is given is 2n. Byte 7 - i of a matrix makes bit i. */
INLINE __m512i value(struct opened *x, int k)
{
    /* the signs of values k and k + 1 for bits 1..4 and 5..0 */
    const __m512i spread = _mm512_set1_epi64(k ? 0x0804040404080808 : 0x0201010101020202);
    const __m512i second = _mm512_set1_epi64(0x0020408001000000); /* bits 5, 6, 7, 0 to 1..4 */

    if (k % 2)
        return _mm512_gf2p8affine_epi64_epi8(x->pair, second, 0);
    x->pair = _mm512_xor_si512(x->pairs[k / 2], _mm512_gf2p8affine_epi64_epi8(x->signs, spread, 0));
    return _mm512_and_si512(x->pair, _mm512_set1_epi8(0x1E));
}

#include "kernels/dot/grid4_vbmi_sums.h"

#include "kernels/dot/few_vbmi_form.h"

void dot_iq3_s_vbmi(const struct dot_job *job)
{
    job_few(job, dot_iq3_s_avx512);
}
