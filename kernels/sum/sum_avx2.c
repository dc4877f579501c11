/* SUM32 is four registers, LANE8 one. */
#include "kernels/sum/sum_avx2.h"
#include "kernels/sum/sum.h"

static float canon1(float x)
{
    return x != x ? __builtin_nanf("") : x;
}

float sum32_avx2(const float *x, size_t n)
{
    __m256 l[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                   _mm256_setzero_ps()};
    size_t i = 0;

    for (; i + 32 <= n; i += 32)
        for (int r = 0; r < 4; r++)
            l[r] = _mm256_add_ps(l[r], _mm256_loadu_ps(x + i + 8 * r));
    for (int r = 0; i < n; r++, i += 8) {
        __m256i part = first8(n - i);
        l[r] = keep8(part, _mm256_add_ps(l[r], _mm256_maskload_ps(x + i, part)), l[r]);
    }
    return canon1(fold32(l));
}

float dot32_avx2(const float *a, const float *b, size_t n)
{
    __m256 l[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                   _mm256_setzero_ps()};
    size_t i = 0;

    for (; i + 32 <= n; i += 32)
        for (int r = 0; r < 4; r++)
            l[r] = _mm256_fmadd_ps(_mm256_loadu_ps(a + i + 8 * r), _mm256_loadu_ps(b + i + 8 * r),
                                   l[r]);
    for (int r = 0; i < n; r++, i += 8) {
        __m256i part = first8(n - i);
        __m256 with =
            _mm256_fmadd_ps(_mm256_maskload_ps(a + i, part), _mm256_maskload_ps(b + i, part), l[r]);
        l[r] = keep8(part, with, l[r]);
    }
    return canon1(fold32(l));
}

float dot8_avx2(const float *a, const float *b, size_t n)
{
    __m256 l = _mm256_setzero_ps();
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        l = _mm256_fmadd_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i), l);
    if (i < n) {
        __m256i part = first8(n - i);
        __m256 with =
            _mm256_fmadd_ps(_mm256_maskload_ps(a + i, part), _mm256_maskload_ps(b + i, part), l);
        l = keep8(part, with, l);
    }
    return canon1(fold8(l));
}
