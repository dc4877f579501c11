/* Eight pairs at a time. */
#include "kernels/rope/rope.h"

#include "kernels/func/func_avx2.h"

void rope_neox_avx2(float *x, uint32_t n_rot, const float *cos, const float *sin)
{
    size_t half = n_rot / 2;

    for (size_t i = 0; i < half; i += 8) {
        __m256i part = first8(half - i);
        __m256 a = _mm256_maskload_ps(x + i, part), b = _mm256_maskload_ps(x + i + half, part);
        __m256 c = _mm256_maskload_ps(cos + i, part), s = _mm256_maskload_ps(sin + i, part);

        _mm256_maskstore_ps(x + i, part, canon8(_mm256_fnmadd_ps(b, s, _mm256_mul_ps(a, c))));
        _mm256_maskstore_ps(x + i + half, part, canon8(_mm256_fmadd_ps(a, s, _mm256_mul_ps(b, c))));
    }
}
