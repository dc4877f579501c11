/* IQ3_XXS where bytes can be permuted; the block is described in iq3_xxs.c. */
#include "kernels/dot/grid4_vbmi.h"

enum { BLOCK_BYTES = 98, OFFSET = 0 };
#define FACTOR 0.25f

/* the size of value 0 by bits 0..2, of value 1 by bits 3..5 */
#define SIZE(level) ((level) == 7 ? 62 : 4 + 8 * (level))
#define SIZE_0(i) SIZE((i) & 7)
#define SIZE_1(i) SIZE((i) >> 3)
static const _Alignas(64) uint8_t size_of[2][64] = {{SIXTY_FOUR(SIZE_0)}, {SIXTY_FOUR(SIZE_1)}};

INLINE void begin(const uint8_t *const b[TOGETHER], struct opened *x)
{
    /* four times seven signs, each for two entries; then bit 7 is made their parity */
    const __m512i place = _mm512_set1_epi64(0x15150E0E07070000);
    const __m512i parity = _mm512_set1_epi64(0x010204081020407F);
    __m512i bits = _mm512_cvtepu32_epi64(load256(b[0] + 66));

    x->index = load512(b[0] + 2);
    x->at = bits_of(x->index);
    x->signs = _mm512_gf2p8affine_epi64_epi8(_mm512_multishift_epi64_epi8(place, bits), parity, 0);
    x->scale = _mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x1B0000001B), bits);
    x->scale = and_or(x->scale, _mm512_set1_epi32(0x1E), _mm512_set1_epi32(1));
}
INLINE void open_part(struct opened *x, int j)
{
    if (j % 2 == 0)
        x->pairs[j / 2] = lookup_256(iq3xxs_planes + 16 * j, x->index, &x->at);
}
INLINE __m512i value(struct opened *x, int k)
{
    return _mm512_permutexvar_epi8(x->pairs[k / 2], load512(size_of[k % 2]));
}

#include "kernels/dot/grid4_vbmi_sums.h"

#include "kernels/dot/few_vbmi_form.h"

void dot_iq3_xxs_vbmi(const struct dot_job *job)
{
    job_few(job, dot_iq3_xxs_avx512);
}
