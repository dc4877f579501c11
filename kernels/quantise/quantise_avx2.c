/* Rule 8 with AVX2: the same divisions, the same products, the same rounding as quantise.c;
 * only the maximum, which is exact, is taken in another order. */
#include "kernels/num.h"
#include "kernels/quantise/quantise.h"
#include <immintrin.h>

static inline uint32_t max_u32(__m256i v)
{
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));

    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4E));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xB1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

/* 8 values: nearest even by the conversion, as rule 6 allows for |v| < 2^22 */
static inline __m256i to_int8(const float *x, __m256 r)
{
    return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), r));
}

void quantise_unit_avx2(const float *x, size_t n, int8_t *q, float *d, int16_t *sum16)
{
    const __m256i mag = _mm256_set1_epi32(0x7FFFFFFF);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7); /* undoes the lanes of pack */
    __m256i top = _mm256_setzero_si256();
    __m256 r;
    uint32_t max_bits;
    float m;

    for (size_t i = 0; i < n; i += 8) {
        __m256i bits = _mm256_loadu_si256((const __m256i *)(x + i));
        top = _mm256_max_epu32(top, _mm256_and_si256(bits, mag));
    }
    max_bits = max_u32(top);
    m = f32_from_bits(max_bits);
    if (max_bits >= 0x7F800000u || m < 0x1p-100f) {
        *d = max_bits >= 0x7F800000u ? f32_from_bits(F32_NAN_BITS) : 0.0f;
        memset(q, 0, n);
        memset(sum16, 0, n / 16 * sizeof *sum16);
        return;
    }
    *d = m / 127.0f;
    r = _mm256_set1_ps(127.0f / m);
    for (size_t i = 0; i < n; i += 32) {
        __m256i a = _mm256_packs_epi32(to_int8(x + i, r), to_int8(x + i + 8, r));
        __m256i b = _mm256_packs_epi32(to_int8(x + i + 16, r), to_int8(x + i + 24, r));
        __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), order);
        /* pairs, then fours, in 32 bits: 16 values are one half of the register */
        __m256i s = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
        s = _mm256_madd_epi16(s, _mm256_set1_epi16(1));
        s = _mm256_add_epi32(s, _mm256_shuffle_epi32(s, 0x4E));
        s = _mm256_add_epi32(s, _mm256_shuffle_epi32(s, 0xB1));
        _mm256_storeu_si256((__m256i *)(q + i), bytes);
        sum16[i / 16] = (int16_t)_mm256_cvtsi256_si32(s);
        sum16[i / 16 + 1] = (int16_t)_mm256_extract_epi32(s, 4);
    }
}
