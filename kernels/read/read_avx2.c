/* Two streams of a page apart in each thread, with a prefetch across page ends: one stream alone stops
 * at every 4 KiB. */
#include "kernels/read/read.h"

#include <immintrin.h>

enum { STEP = 256, AHEAD = 4096 };

static inline __m256i step(const char *p, __m256i x)
{
    __m256i a = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)p),
                                 _mm256_loadu_si256((const __m256i *)(p + 32)));
    __m256i b = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(p + 64)),
                                 _mm256_loadu_si256((const __m256i *)(p + 96)));
    __m256i c = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(p + 128)),
                                 _mm256_loadu_si256((const __m256i *)(p + 160)));
    __m256i d = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(p + 192)),
                                 _mm256_loadu_si256((const __m256i *)(p + 224)));

    for (int k = 0; k < STEP; k += 64) /* past the end is harmless */
        _mm_prefetch(p + AHEAD + k, _MM_HINT_T0);
    return _mm256_xor_si256(x, _mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d)));
}

uint64_t read_words_avx2(const void *from, size_t n)
{
    const char *p = from;
    size_t half = n / 2 / STEP * STEP, i = 0;
    __m256i x = _mm256_setzero_si256(), y = x;
    uint64_t w[4];

    for (; i < half; i += STEP) {
        x = step(p + i, x);
        y = step(p + half + i, y);
    }
    for (i = 2 * half; i + STEP <= n; i += STEP)
        x = step(p + i, x);
    _mm256_storeu_si256((__m256i *)w, _mm256_xor_si256(x, y));
    return w[0] ^ w[1] ^ w[2] ^ w[3];
}
