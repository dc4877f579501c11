/* IQ3_S where bytes can be permuted; the block is described in iq3_s.c. */
#include "kernels/dot/grid4_vbmi.h"

enum { BLOCK_BYTES = 110 };
#define FACTOR 1.0f

INLINE void begin(const uint8_t *const b[TOGETHER], struct opened *x)
{
    /* a sub-block's nibble, one place early, so that it is doubled; a word has all 32 bits twice */
    const __m512i place =
        _mm512_setr_epi64(0x3F0000003F, 0x0300000003, 0x0700000007, 0x0B0000000B, 0x0F0000000F,
                          0x1300000013, 0x1700000017, 0x1B0000001B);
    const __m512i half = _mm512_set_epi64(
        0x1F1F1E1E1D1D1C1C, 0x1B1B1A1A19191818, 0x1717161615151414, 0x1313121211111010,
        0x0F0F0E0E0D0D0C0C, 0x0B0B0A0A09090808, 0x0707060605050404, 0x0303020201010000);

    x->index = load512(b[0] + 2);
    x->at = bits_of(x->index);
    x->at.bit8 = (__mmask64)load_u64(b[0] + 66);
    x->signs = _mm512_permutexvar_epi8(half, _mm512_castsi256_si512(load256(b[0] + 74)));
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
INLINE __m512i magnitudes(const struct opened *x, int k)
{
    __m512i v = x->pairs[k / 2];

    return _mm512_and_si512(k % 2 ? _mm512_srli_epi16(v, 4) : v, _mm512_set1_epi8(15));
}

#include "kernels/dot/grid4_vbmi_sums.h"

#include "kernels/dot/few_vbmi_form.h"

void dot_iq3_s_vbmi(const struct dot_job *job)
{
    job_few(job, dot_iq3_s_avx512);
}
