/* IQ3_S with AVX-512. */
#include "kernels/dot/iq3_s_avx2.h"

#include "kernels/dot/iq3_avx512.h"

/* values 64j..; entries are looked up 32 at once, the same for j and j ^ 1 */
INLINE __m512i bytes512(const uint8_t *b, const struct head *h, int j, __mmask64 *negative)
{
    __m512i index = _mm512_cvtepu8_epi16(load256(b + 2 + 32 * (j / 2)));
    __m512i low = lookup_256(iq3s_codes, index), high = lookup_256(iq3s_codes + 256, index);

    *negative = sign_mask(h->negative, j);
    low = _mm512_mask_mov_epi16(low, load_u32(b + 66 + 4 * (j / 2)), high);
    return widen_nibbles(half_of(low, j));
}

#include "kernels/dot/block_avx512.h"

#include "kernels/dot/a256_avx512_form.h"

#include "kernels/dot/a256_panel_avx512.h"

void dot_iq3_s_avx512(const struct dot_job *job)
{
    job_panel(job);
}
