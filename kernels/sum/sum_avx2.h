/* SUM32 and LANE8 in registers, for AVX2 forms of this and other folders. */
#pragma once
#include "kernels/func/func_avx2.h"

/* ((0+4)+(2+6)) + ((1+5)+(3+7)) */
static inline float fold8(__m256 l)
{
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(l), _mm256_extractf128_ps(l, 1));

    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

/* the folds (LANE8) of eight registers, in order */
static inline __attribute__((always_inline)) __m256 fold8x8(const __m256 a[8])
{
    __m256 q[4], h[2];

    for (int i = 0; i < 4; i++) /* lanes l + l+4: a[i] low half, a[i+4] high half */
        q[i] = _mm256_add_ps(_mm256_permute2f128_ps(a[i], a[i + 4], 0x20),
                             _mm256_permute2f128_ps(a[i], a[i + 4], 0x31));
    for (int i = 0; i < 2; i++) /* (0+4)+(2+6), (1+5)+(3+7) of two registers */
        h[i] = _mm256_add_ps(_mm256_shuffle_ps(q[2 * i], q[2 * i + 1], 0x44),
                             _mm256_shuffle_ps(q[2 * i], q[2 * i + 1], 0xEE));
    return _mm256_add_ps(_mm256_shuffle_ps(h[0], h[1], 0x88), _mm256_shuffle_ps(h[0], h[1], 0xDD));
}

/* lanes 0..7, 8..15, 16..23, 24..31 */
static inline float fold32(const __m256 l[4])
{
    return fold8(_mm256_add_ps(_mm256_add_ps(l[0], l[2]), _mm256_add_ps(l[1], l[3])));
}

/* A lane that has no term keeps its value: adding fma(0, 0, lane) could turn -0 into +0. */
static inline __m256 keep8(__m256i terms, __m256 with, __m256 without)
{
    return _mm256_blendv_ps(without, with, _mm256_castsi256_ps(terms));
}
