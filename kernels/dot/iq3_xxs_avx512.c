/* IQ3_XXS with AVX-512. */
#include "kernels/dot/iq3_xxs_avx2.h"

#include "kernels/dot/iq3_avx512.h"

/* values 64j..; entries are looked up 32 at once, the same for j and j ^ 1 */
INLINE __m512i bytes512(const uint8_t *b, const struct head *h, int j, __mmask64 *negative)
{
    const __m512i levels = _mm512_broadcast_i32x4(load128(iq3xxs_levels));
    __m512i index = _mm512_cvtepu8_epi16(load256(b + 2 + 32 * (j / 2)));

    *negative = sign_mask(h->negative, j);
    index = widen_nibbles(half_of(lookup_256(iq3xxs_codes, index), j));
    return _mm512_shuffle_epi8(levels, index);
}

#include "kernels/dot/block_avx512.h"

#include "kernels/dot/a256_avx512_form.h"

#include "kernels/dot/a256_panel_avx512.h"

void dot_iq3_xxs_avx512(const struct dot_job *job)
{
    job_panel(job);
}
