/* Attention for AVX2: a tile is 1, 2 or 4 queries, and always eight accumulators, so that eight
 * chains of fused multiply-adds are in flight (one chain alone would wait for its own latency).
 * A tile's key or value is widened once for its queries. Chunks are the outer loop and queries the
 * inner one, so that a prompt's queries find the chunk in the cache. */
#include "kernels/attention/attention.h"

#include "kernels/attention/attention_row.h"
#include "kernels/softmax/softmax_avx2.h"

#include <string.h>

enum { ACC = 8 }; /* accumulators of a tile */

/* eight stored values at i, widened */
INLINE __m256 load8(enum kv_type type, const char *row, size_t i)
{
    if (type == KV_F16)
        return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(row + 2 * i)));
    if (type == KV_BF16)
        return _mm256_castsi256_ps(_mm256_slli_epi32(
            _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(row + 2 * i))), 16));
    return _mm256_loadu_ps((const float *)(row + 4 * i));
}

/* the last n < 8 of a row; no byte behind the row is touched */
INLINE __m256 load_tail(enum kv_type type, const char *row, size_t i, size_t n)
{
    size_t size = type == KV_F32 ? 4 : 2;
    char part[32] = {0};

    memcpy(part, row + i * size, n * size);
    return load8(type, part, 0);
}

/* s[query][j] = score of key first + j, j < count; up to ACC/Q - 1 more entries are overwritten. */
INLINE void scores(enum kv_type type, const int Q, const struct attention_keys *a,
                   const float *const *q, size_t first, size_t count, float (*s)[ATTENTION_CHUNK])
{
    const int K = ACC / Q;
    const size_t hd = a->hd;
    const __m256 scale = _mm256_set1_ps(a->scale);

    for (size_t j = 0; j < count; j += (size_t)K) {
        const char *k[ACC];
        __m256 acc[ACC], r;
        __m128 lo, hi;
        size_t i = 0;

        for (int x = 0; x < K; x++) { /* past the end: the last key again */
            size_t at = j + (size_t)x < count ? j + (size_t)x : count - 1;
            k[x] = row_at(a->list, a->k, a->k_stride, first + at);
        }
        for (int x = 0; x < ACC; x++)
            acc[x] = _mm256_setzero_ps();
        for (; i + 8 <= hd; i += 8)
            for (int x = 0; x < K; x++) {
                __m256 key = load8(type, k[x], i);
                for (int y = 0; y < Q; y++)
                    acc[y * K + x] =
                        _mm256_fmadd_ps(_mm256_loadu_ps(q[y] + i), key, acc[y * K + x]);
            }
        if (i < hd) {
            __m256i part = first8(hd - i);

            for (int x = 0; x < K; x++) {
                __m256 key = load_tail(type, k[x], i, hd - i);
                for (int y = 0; y < Q; y++) {
                    __m256 *to = &acc[y * K + x];
                    *to = keep8(part, _mm256_fmadd_ps(_mm256_maskload_ps(q[y] + i, part), key, *to),
                                *to);
                }
            }
        }
        r = _mm256_mul_ps(fold8x8(acc), scale);
        lo = _mm256_castps256_ps128(r);
        hi = _mm256_extractf128_ps(r, 1);
        if (Q == 1) {
            _mm256_storeu_ps(&s[0][j], r);
        } else if (Q == 2) {
            _mm_storeu_ps(&s[0][j], lo);
            _mm_storeu_ps(&s[1][j], hi);
        } else {
            _mm_storel_pi((__m64 *)&s[0][j], lo);
            _mm_storeh_pi((__m64 *)&s[1][j], lo);
            _mm_storel_pi((__m64 *)&s[2][j], hi);
            _mm_storeh_pi((__m64 *)&s[3][j], hi);
        }
    }
}

/* Channels at ... at + 8V - 1: o[query][i] = CHAIN over the keys from ... to-1 of this chunk; from
 * > 0 goes on with what o holds. */
INLINE void band(enum kv_type type, const int Q, const int V, const struct attention_keys *a,
                 size_t first, size_t from, size_t to, float *const p[], float *const o[],
                 size_t at)
{
    __m256 acc[ACC];

    for (int y = 0; y < Q; y++)
        for (int x = 0; x < V; x++)
            acc[y * V + x] =
                from ? _mm256_loadu_ps(o[y] + at + 8 * (size_t)x) : _mm256_setzero_ps();
    for (size_t j = from; j < to; j++) {
        const char *v = row_at(a->list, a->v, a->v_stride, first + j);

        for (int x = 0; x < V; x++) {
            __m256 value = load8(type, v, at + 8 * (size_t)x);
            for (int y = 0; y < Q; y++)
                acc[y * V + x] =
                    _mm256_fmadd_ps(_mm256_broadcast_ss(p[y] + j), value, acc[y * V + x]);
        }
    }
    for (int y = 0; y < Q; y++)
        for (int x = 0; x < V; x++)
            _mm256_storeu_ps(o[y] + at + 8 * (size_t)x, acc[y * V + x]);
}

/* The same for the last n < 8 channels. */
INLINE void band_tail(enum kv_type type, const int Q, const struct attention_keys *a, size_t first,
                      size_t from, size_t to, float *const p[], float *const o[], size_t at,
                      size_t n)
{
    __m256i part = first8(n);
    __m256 acc[4];

    for (int y = 0; y < Q; y++)
        acc[y] = from ? _mm256_maskload_ps(o[y] + at, part) : _mm256_setzero_ps();
    for (size_t j = from; j < to; j++) {
        const char *v = row_at(a->list, a->v, a->v_stride, first + j);
        __m256 value = load_tail(type, v, at, n);

        for (int y = 0; y < Q; y++)
            acc[y] = _mm256_fmadd_ps(_mm256_broadcast_ss(p[y] + j), value, acc[y]);
    }
    for (int y = 0; y < Q; y++)
        _mm256_maskstore_ps(o[y] + at, part, acc[y]);
}

/* All channels: bands of ACC registers for all queries, then narrower ones. */
INLINE void values(enum kv_type type, const int Q, const struct attention_keys *a, size_t first,
                   size_t from, size_t to, float *const p[], float *const o[])
{
    const int V = ACC / Q;
    size_t dv = a->dv, i = 0;

    for (; i + 8 * (size_t)V <= dv; i += 8 * (size_t)V)
        band(type, Q, V, a, first, from, to, p, o, i);
    if (V > 4 && i + 32 <= dv) {
        band(type, Q, 4, a, first, from, to, p, o, i);
        i += 32;
    }
    if (V > 2 && i + 16 <= dv) {
        band(type, Q, 2, a, first, from, to, p, o, i);
        i += 16;
    }
    if (i + 8 <= dv) {
        band(type, Q, 1, a, first, from, to, p, o, i);
        i += 8;
    }
    if (i < dv)
        band_tail(type, Q, a, first, from, to, p, o, i, dv - i);
}

#define FORM attention_group_avx2
#define LARGEST max_avx2
#define EXPS exp_sum_avx2
#include "kernels/attention/attention_walk.h"

void kv_store_avx2(enum kv_type type, const float *x, size_t n, void *out)
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m256 v = canon8(_mm256_loadu_ps(x + i));

        if (type == KV_F16) {
            __m128i h = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
            _mm_storeu_si128((__m128i *)((char *)out + 2 * i), h);
        } else if (type == KV_F32) {
            _mm256_storeu_ps((float *)out + i, v);
        } else { /* bits + 0x7FFF + the last bit that stays, then the upper half; NaN as it is */
            __m256i b = _mm256_castps_si256(v);
            __m256i odd = _mm256_and_si256(_mm256_srli_epi32(b, 16), _mm256_set1_epi32(1));
            __m256i r = _mm256_add_epi32(b, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
            __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));

            r = _mm256_srli_epi32(_mm256_blendv_epi8(r, b, nan), 16);
            r = _mm256_permute4x64_epi64(_mm256_packus_epi32(r, r), 0x08);
            _mm_storeu_si128((__m128i *)((char *)out + 2 * i), _mm256_castsi256_si128(r));
        }
    }
    kv_store_ref(type, x + i, n - i, (char *)out + kv_bytes(type, i));
}
