/* Sixteen lanes of rule 17, for AVX-512 forms. NaN bits are not canonical here. */
#pragma once
#include <immintrin.h>

static inline __m512 exp16(__m512 x) /* rule 17 */
{
    const __m512 one = _mm512_set1_ps(1.0f), magic = _mm512_set1_ps(0x1.8p+23f);
    const __m512 top = _mm512_set1_ps(89.0f), low = _mm512_set1_ps(-104.0f);
    __m512 c, n, r, p, s, e, y;

    c = _mm512_max_ps(low, _mm512_min_ps(top, x)); /* x second: a NaN stays (and goes through) */
    n = _mm512_sub_ps(_mm512_fmadd_ps(c, _mm512_set1_ps(0x1.715476p+0f), magic), magic);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(-0x1.62e4p-1f), c);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(-0x1.7f7d1cp-20f), r);
    p = _mm512_set1_ps(0x1.6a234ep-10f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.123a6cp-7f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.5558f4p-5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.55549p-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.fffffcp-2f));
    s = _mm512_add_ps(one, r);
    e = _mm512_sub_ps(r, _mm512_sub_ps(s, one));
    y = _mm512_add_ps(s, _mm512_fmadd_ps(_mm512_mul_ps(r, r), p, e));
    y = _mm512_scalef_ps(
        y, n); /* rounds once, where the rule's second product does: y * 2^k1 is exact */
    y = _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, top, _CMP_GT_OQ), y,
                             _mm512_set1_ps(__builtin_inff()));
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, low, _CMP_NLT_UQ), y);
}
