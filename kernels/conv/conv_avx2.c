/* Eight channels at a time; their taps lie `width` floats apart and are gathered. */
#include "kernels/conv/conv.h"

#include "kernels/func/func_avx2.h"

void short_conv_avx2(const float *const *x, const float *w, const float *bias, size_t width,
                     size_t n, float *y)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i apart = _mm256_mullo_epi32(lane, _mm256_set1_epi32((int)width));

    for (size_t c = 0; c < n; c += 8) {
        __m256i part = first8(n - c);
        __m256 mask = _mm256_castsi256_ps(part);
        __m256 acc = bias ? _mm256_maskload_ps(bias + c, part) : _mm256_setzero_ps();

        for (size_t j = 0; j < width; j++) {
            __m256 tap =
                _mm256_mask_i32gather_ps(_mm256_setzero_ps(), w + c * width + j, apart, mask, 4);
            __m256 in = x[j] ? _mm256_maskload_ps(x[j] + c, part) : _mm256_setzero_ps();

            acc = _mm256_fmadd_ps(tap, in, acc);
        }
        _mm256_maskstore_ps(y + c, part, canon8(acc));
    }
}
