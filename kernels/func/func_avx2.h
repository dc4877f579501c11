/* Eight lanes of rules 5 and 17 to 20, for the AVX2 forms of this and other folders. Only *_avx2.c
 * files may include it. NaN bits are not canonical here: canon8 before a store. */
#pragma once
#include <immintrin.h>
#include <stddef.h>

static inline __m256 canon8(__m256 x) /* rule 4 */
{
    __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));

    return _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

/* the first n of eight lanes, as a mask; n >= 8: all */
static inline __m256i first8(size_t n)
{
    __m256i place = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);

    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n > 8 ? 8 : (int)n), place);
}

static inline __m256 neg_abs8(__m256 x)
{
    return _mm256_or_ps(x, _mm256_set1_ps(-0.0f));
}

static inline __m256 exp8(__m256 x) /* rule 17 */
{
    const __m256 one = _mm256_set1_ps(1.0f), magic = _mm256_set1_ps(0x1.8p+23f);
    const __m256 top = _mm256_set1_ps(89.0f), low = _mm256_set1_ps(-104.0f);
    const __m256i bias = _mm256_set1_epi32(127);
    __m256 c, n, r, p, s, e, y;
    __m256i k, k1, k2;

    c = _mm256_max_ps(low, _mm256_min_ps(top, x)); /* x second: a NaN stays (and goes through) */
    n = _mm256_sub_ps(_mm256_fmadd_ps(c, _mm256_set1_ps(0x1.715476p+0f), magic), magic);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(-0x1.62e4p-1f), c);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(-0x1.7f7d1cp-20f), r);
    p = _mm256_set1_ps(0x1.6a234ep-10f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.123a6cp-7f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.5558f4p-5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.55549p-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.fffffcp-2f));
    s = _mm256_add_ps(one, r);
    e = _mm256_sub_ps(r, _mm256_sub_ps(s, one));
    y = _mm256_add_ps(s, _mm256_fmadd_ps(_mm256_mul_ps(r, r), p, e));
    k = _mm256_cvtps_epi32(n); /* NaN: any scale, y is NaN */
    k1 = _mm256_srai_epi32(k, 1);
    k2 = _mm256_sub_epi32(k, k1);
    k1 = _mm256_slli_epi32(_mm256_add_epi32(k1, bias), 23);
    k2 = _mm256_slli_epi32(_mm256_add_epi32(k2, bias), 23);
    y = _mm256_mul_ps(_mm256_mul_ps(y, _mm256_castsi256_ps(k1)), _mm256_castsi256_ps(k2));
    y = _mm256_blendv_ps(y, _mm256_set1_ps(__builtin_inff()), _mm256_cmp_ps(x, top, _CMP_GT_OQ));
    return _mm256_andnot_ps(_mm256_cmp_ps(x, low, _CMP_LT_OQ), y);
}

static inline __m256 log1p8(__m256 u) /* rule 18 */
{
    __m256 s = _mm256_div_ps(u, _mm256_add_ps(_mm256_set1_ps(2.0f), u));
    __m256 z = _mm256_mul_ps(s, s), h = _mm256_set1_ps(0x1.f1c244p-4f), v;

    h = _mm256_fmadd_ps(h, z, _mm256_set1_ps(0x1.b6d1e6p-4f));
    h = _mm256_fmadd_ps(h, z, _mm256_set1_ps(0x1.2509a4p-3f));
    h = _mm256_fmadd_ps(h, z, _mm256_set1_ps(0x1.9996a6p-3f));
    h = _mm256_fmadd_ps(h, z, _mm256_set1_ps(0x1.555558p-2f));
    v = _mm256_sub_ps(u, _mm256_mul_ps(_mm256_add_ps(z, z), h));
    return _mm256_fnmadd_ps(s, v, u);
}

static inline __m256 softplus8(__m256 x) /* rule 18 */
{
    __m256 zero = _mm256_setzero_ps();

    /* max(x, 0) with a NaN x giving 0: the sum is NaN through log1p */
    return _mm256_add_ps(_mm256_max_ps(x, zero), log1p8(exp8(neg_abs8(x))));
}

static inline __m256 sigmoid8(__m256 x) /* rule 19 */
{
    __m256 one = _mm256_set1_ps(1.0f), e = exp8(neg_abs8(x));
    __m256 right = _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_GE_OQ);

    return _mm256_div_ps(_mm256_blendv_ps(e, one, right), _mm256_add_ps(one, e));
}

static inline __m256 silu8(__m256 x) /* rule 19 */
{
    __m256 one = _mm256_set1_ps(1.0f), e = exp8(neg_abs8(x));
    __m256 right = _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_GE_OQ);

    return _mm256_div_ps(_mm256_blendv_ps(_mm256_mul_ps(x, e), x, right), _mm256_add_ps(one, e));
}

static inline __m256 tanh8(__m256 x) /* rule 20: both ways, then choose */
{
    const __m256 one = _mm256_set1_ps(1.0f), two = _mm256_set1_ps(2.0f);
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 a = _mm256_andnot_ps(sign, x), z = _mm256_mul_ps(x, x), p, near, far;

    p = _mm256_set1_ps(-0x1.76982cp-8f);
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(0x1.525296p-6f));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(-0x1.b843aap-5f));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(0x1.110764p-3f));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(-0x1.555534p-2f));
    near = _mm256_fmadd_ps(_mm256_mul_ps(x, z), p, x);
    far = _mm256_sub_ps(one, _mm256_div_ps(two, _mm256_add_ps(exp8(_mm256_add_ps(a, a)), one)));
    far = _mm256_or_ps(_mm256_andnot_ps(sign, far), _mm256_and_ps(sign, x));
    return _mm256_blendv_ps(far, near, _mm256_cmp_ps(a, _mm256_set1_ps(0.625f), _CMP_LT_OQ));
}

static inline __m256 clamp8(__m256 x, __m256 lo, __m256 hi) /* rule 5 */
{
    return _mm256_max_ps(lo, _mm256_min_ps(hi, x));
}
