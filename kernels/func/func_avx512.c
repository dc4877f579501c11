/* exp sixteen at a time. The other functions have no form of this width: they are not where the
 * time goes. */
#include "kernels/func/func_avx512.h"
#include "kernels/func/func.h"

void vec_exp_avx512(const float *x, float *y, size_t n)
{
    const __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000));

    for (size_t i = 0; i < n; i += 16) {
        __mmask16 part = (__mmask16)(n - i < 16 ? (1u << (n - i)) - 1 : 0xFFFF);
        __m512 e = exp16(_mm512_maskz_loadu_ps(part, x + i));

        e = _mm512_mask_mov_ps(e, _mm512_cmp_ps_mask(e, e, _CMP_UNORD_Q), nan);
        _mm512_mask_storeu_ps(y + i, part, e);
    }
}
