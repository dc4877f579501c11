/* Attention for AVX2: a tile is 1, 2 or 4 queries, and always eight accumulators, so that eight
 * chains of fused multiply-adds are in flight (one chain alone would wait for its own latency).
 * A tile's key or value is widened once for its queries. Chunks are the outer loop and queries the
 * inner one, so that a prompt's queries find the chunk in the cache. */
#include "kernels/attention/attention.h"

#include "kernels/softmax/softmax_avx2.h"

#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

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

INLINE const char *row_at(const uint32_t *list, const void *base, size_t stride, size_t j)
{
    return (const char *)base + (list ? list[j] : j) * stride;
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

struct state { /* of one query between chunks; its o is in query->out */
    float m, l;
};

/* 29.4 */
static void merge(struct state *st, float m_c, float l_c, const float *o_c, float *out, size_t dv)
{
    float m = st->m > m_c ? st->m : m_c;
    __m256 e = exp8(_mm256_setr_ps(st->m - m, m_c - m, 0, 0, 0, 0, 0, 0));
    __m128 e4 = _mm256_castps256_ps128(e);
    __m128 new4 = _mm_movehdup_ps(e4);
    __m256 old = _mm256_broadcastss_ps(e4), new = _mm256_broadcastss_ps(new4);
    size_t i = 0;

    st->l = _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(st->l), e4, _mm_mul_ss(_mm_set_ss(l_c), new4)));
    st->m = m;
    for (; i + 8 <= dv; i += 8)
        _mm256_storeu_ps(out + i, _mm256_fmadd_ps(_mm256_loadu_ps(out + i), old,
                                                  _mm256_mul_ps(_mm256_loadu_ps(o_c + i), new)));
    if (i < dv) {
        __m256i part = first8(dv - i);
        __m256 add = _mm256_mul_ps(_mm256_maskload_ps(o_c + i, part), new);

        _mm256_maskstore_ps(out + i, part,
                            _mm256_fmadd_ps(_mm256_maskload_ps(out + i, part), old, add));
    }
}

/* 29.6 */
static void finish(float *out, float l, size_t dv)
{
    __m256 sum = _mm256_set1_ps(l), zero = _mm256_setzero_ps();

    for (size_t i = 0; i < dv; i += 8) {
        __m256i part = first8(dv - i);
        __m256 r = _mm256_div_ps(_mm256_maskload_ps(out + i, part), sum);

        _mm256_maskstore_ps(out + i, part, canon8(_mm256_add_ps(r, zero)));
    }
}

/* One chunk for Q queries that all have at least one key in it. */
INLINE void tile(enum kv_type type, const int Q, const struct attention_keys *a,
                 const struct attention_query *query, struct state *st, size_t first,
                 float (*s)[ATTENTION_CHUNK], float *o_c)
{
    const float *q[4];
    float *p[4], *o[4];
    float m[4], l[4];
    size_t count[4], least = ATTENTION_CHUNK, most = 0;

    for (int y = 0; y < Q; y++) {
        size_t left = query[y].n - first;

        count[y] = left < ATTENTION_CHUNK ? left : ATTENTION_CHUNK;
        least = count[y] < least ? count[y] : least;
        most = count[y] > most ? count[y] : most;
        q[y] = query[y].q;
        p[y] = s[y];
        o[y] = first ? o_c + (size_t)y * a->dv : query[y].out; /* the first chunk is copied */
    }
    scores(type, Q, a, q, first, most, s);
    for (int y = 0; y < Q; y++) {
        m[y] = max_avx2(p[y], count[y]);
        l[y] = exp_sum_avx2(p[y], m[y], p[y], count[y]);
    }
    values(type, Q, a, first, 0, least, p, o);
    for (int y = 0; y < Q; y++) { /* keys that not all of the tile have */
        if (count[y] > least)
            values(type, 1, a, first, least, count[y], p + y, o + y);
        if (first) {
            merge(&st[y], m[y], l[y], o[y], query[y].out, a->dv);
        } else {
            st[y].m = m[y];
            st[y].l = l[y];
        }
    }
}

INLINE void group(enum kv_type type, const struct attention_keys *a,
                  const struct attention_query *query, size_t n_queries, void *scratch)
{
    struct state *st = scratch;
    float(*s)[ATTENTION_CHUNK] = (void *)((float *)scratch + (2 * n_queries + 15) / 16 * 16);
    float *o_c = s[4];
    size_t longest = 0;

    for (size_t i = 0; i < n_queries; i++)
        longest = query[i].n > longest ? query[i].n : longest;
    for (size_t first = 0; first < longest; first += ATTENTION_CHUNK)
        for (size_t i = 0; i < n_queries;) {
            size_t run = 0; /* neighbours that have keys in this chunk */

            while (run < 4 && i + run < n_queries && query[i + run].n > first)
                run++;
            if (run == 0) {
                i++;
            } else if (run == 4) {
                tile(type, 4, a, query + i, st + i, first, s, o_c);
                i += 4;
            } else if (run >= 2) {
                tile(type, 2, a, query + i, st + i, first, s, o_c);
                i += 2;
            } else {
                tile(type, 1, a, query + i, st + i, first, s, o_c);
                i += 1;
            }
        }
    for (size_t i = 0; i < n_queries; i++)
        finish(query[i].out, st[i].l, a->dv);
}

static void group_f32(const struct attention_keys *a, const struct attention_query *query,
                      size_t n_queries, void *scratch)
{
    group(KV_F32, a, query, n_queries, scratch);
}

static void group_f16(const struct attention_keys *a, const struct attention_query *query,
                      size_t n_queries, void *scratch)
{
    group(KV_F16, a, query, n_queries, scratch);
}

static void group_bf16(const struct attention_keys *a, const struct attention_query *query,
                       size_t n_queries, void *scratch)
{
    group(KV_BF16, a, query, n_queries, scratch);
}

void attention_group_avx2(const struct attention_keys *keys, const struct attention_query *query,
                          size_t n_queries, void *scratch)
{
    switch (keys->type) {
    case KV_F16:
        group_f16(keys, query, n_queries, scratch);
        break;
    case KV_BF16:
        group_bf16(keys, query, n_queries, scratch);
        break;
    default:
        group_f32(keys, query, n_queries, scratch);
    }
}

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
