/* Sixteen columns at a time, one cache line of each row: eight chains in flight. The decayed state
 * is made twice, once for u and once for the update, rather than stored and read again. */
#include "kernels/delta/delta.h"

#include "kernels/func/func_avx2.h"

#define INLINE static inline __attribute__((always_inline))

struct head {
    const float *a, *q, *key, *value;
    int a_one;
    float beta;
    size_t pitch, n_k;
};

/* R registers of columns, of which the last one may be partial (part); WHOLE: it is not */
INLINE __m256 get(const float *x, int whole, __m256i part)
{
    return whole ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, part);
}

INLINE void put(float *x, int whole, __m256i part, __m256 v)
{
    if (whole)
        _mm256_storeu_ps(x, canon8(v));
    else
        _mm256_maskstore_ps(x, part, canon8(v));
}

INLINE __m256 fold4(const __m256 *l, int step)
{
    return _mm256_add_ps(_mm256_add_ps(l[0], l[2 * step]), _mm256_add_ps(l[step], l[3 * step]));
}

/* one row's part of u: lane += fma(S * a, key) */
INLINE void look(const struct head *h, const float *from, size_t k, const int R, int whole,
                 __m256i part, __m256 *lane)
{
    __m256 a = _mm256_broadcast_ss(h->a + (h->a_one ? 0 : k));
    __m256 key = _mm256_broadcast_ss(h->key + k);

    for (int r = 0; r < R; r++) {
        __m256 s = _mm256_mul_ps(get(from + k * h->pitch + 8 * r, whole, part), a);
        lane[r] = _mm256_fmadd_ps(s, key, lane[r]);
    }
}

/* one row's update, and its part of o */
INLINE void change(const struct head *h, const float *from, float *to, size_t k, const int R,
                   int whole, __m256i part, const __m256 *t, __m256 *lane)
{
    __m256 a = _mm256_broadcast_ss(h->a + (h->a_one ? 0 : k));
    __m256 key = _mm256_broadcast_ss(h->key + k), q = _mm256_broadcast_ss(h->q + k);

    for (int r = 0; r < R; r++) {
        __m256 s = _mm256_mul_ps(get(from + k * h->pitch + 8 * r, whole, part), a);

        s = _mm256_fmadd_ps(key, t[r], s);
        put(to + k * h->pitch + 8 * r, whole, part, s);
        lane[r] = _mm256_fmadd_ps(s, q, lane[r]);
    }
}

INLINE void columns(const struct head *h, const float *from, float *to, size_t v, const int R,
                    int whole, __m256i part, float *o)
{
    __m256 lane[8], t[2]; /* lane l of register r: lane[l * R + r] */
    size_t k = 0;

    for (int i = 0; i < 4 * R; i++)
        lane[i] = _mm256_setzero_ps();
    for (; k + 4 <= h->n_k; k += 4)
        for (int l = 0; l < 4; l++)
            look(h, from + v, k + (size_t)l, R, whole, part, lane + l * R);
    for (int l = 0; l < 3; l++)
        if (k + (size_t)l < h->n_k)
            look(h, from + v, k + (size_t)l, R, whole, part, lane + l * R);
    for (int r = 0; r < R; r++) {
        __m256 u = fold4(lane + r, R), value = get(h->value + v + 8 * r, whole, part);
        t[r] = _mm256_mul_ps(_mm256_sub_ps(value, u), _mm256_set1_ps(h->beta));
    }
    for (int i = 0; i < 4 * R; i++)
        lane[i] = _mm256_setzero_ps();
    for (k = 0; k + 4 <= h->n_k; k += 4)
        for (int l = 0; l < 4; l++)
            change(h, from + v, to + v, k + (size_t)l, R, whole, part, t, lane + l * R);
    for (int l = 0; l < 3; l++)
        if (k + (size_t)l < h->n_k)
            change(h, from + v, to + v, k + (size_t)l, R, whole, part, t, lane + l * R);
    for (int r = 0; r < R; r++)
        put(o + v + 8 * r, whole, part, fold4(lane + r, R));
}

void delta_rule_avx2(const float *from, float *to, size_t pitch, const float *a, int a_one,
                     const float *q, const float *key, const float *value, float beta, size_t n_k,
                     size_t n_v, float *o)
{
    struct head h = {a, q, key, value, a_one, beta, pitch, n_k};
    __m256i all = first8(8);
    size_t v = 0;

    for (; v + 16 <= n_v; v += 16)
        columns(&h, from, to, v, 2, 1, all, o);
    for (; v + 8 <= n_v; v += 8)
        columns(&h, from, to, v, 1, 1, all, o);
    if (v < n_v)
        columns(&h, from, to, v, 1, 0, first8(n_v - v), o);
}
