/* Eight dots at a time: four heads by two pools, so that a pooled key serves four heads and eight
 * chains are in flight. */
#include "kernels/index/index.h"

#include "kernels/sum/sum_avx2.h"

#define INLINE static inline __attribute__((always_inline))

static __m256 load_part(const float *x, size_t i, __m256i part)
{
    return _mm256_maskload_ps(x + i, part);
}

/* s[h][x] = relu(fl(dot * scale)), heads 0 ... H-1 at q, pools 0 ... P-1 at k; H * P is 8 */
INLINE void tile(const float *const *q, const float *const *k, const int H, const int P, size_t d,
                 __m256 scale, float s[8])
{
    __m256 acc[8], r;
    size_t i = 0;

    for (int x = 0; x < 8; x++)
        acc[x] = _mm256_setzero_ps();
    for (; i + 8 <= d; i += 8)
        for (int x = 0; x < P; x++) {
            __m256 key = _mm256_loadu_ps(k[x] + i);
            for (int h = 0; h < H; h++)
                acc[h * P + x] = _mm256_fmadd_ps(_mm256_loadu_ps(q[h] + i), key, acc[h * P + x]);
        }
    if (i < d) {
        __m256i part = first8(d - i);
        for (int x = 0; x < P; x++) {
            __m256 key = load_part(k[x], i, part);
            for (int h = 0; h < H; h++) {
                __m256 *to = &acc[h * P + x];
                *to = keep8(part, _mm256_fmadd_ps(load_part(q[h], i, part), key, *to), *to);
            }
        }
    }
    r = _mm256_mul_ps(fold8x8(acc), scale);
    _mm256_storeu_ps(s,
                     _mm256_max_ps(_mm256_setzero_ps(), r)); /* NaN stays, and -0, as in rule 5 */
}

/* Two pools (the same one twice at an odd end): four heads at a time, then one. */
INLINE void two_pools(const float *q, const float *w, const float *const k[2], size_t n_heads,
                      size_t d, __m256 scale, float acc[2])
{
    __m128 a = _mm_setzero_ps();
    float s[8];

    for (size_t h = 0; h < n_heads; h += 4) {
        const float *head[4];
        size_t count = n_heads - h < 4 ? n_heads - h : 4;

        for (size_t x = 0; x < 4; x++) /* past the last head: the last again, not used */
            head[x] = q + (h + (x < count ? x : count - 1)) * d;
        tile(head, k, 4, 2, d, scale, s);
        for (size_t x = 0; x < count; x++) {
            __m128 v = _mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)(s + 2 * x)));
            a = w ? _mm_fmadd_ps(_mm_set1_ps(w[h + x]), v, a) : _mm_add_ps(a, v);
        }
    }
    _mm_storel_pi((__m64 *)acc, a);
}

void index_scores_avx2(const float *q, const float *w, const float *pk, size_t stride,
                       size_t n_pools, size_t n_heads, size_t d, float scale, float *score)
{
    for (size_t b = 0; b < n_pools; b += 2) {
        const float *k[2] = {pk + b * stride, pk + (b + 1 < n_pools ? b + 1 : b) * stride};
        float acc[2];

        two_pools(q, w, k, n_heads, d, _mm256_set1_ps(scale), acc);
        for (size_t x = 0; x < 2 && b + x < n_pools; x++)
            score[b + x] = acc[x] != acc[x] ? __builtin_nanf("") : acc[x];
    }
}
