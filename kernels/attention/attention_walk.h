/* The way through chunks and queries, shared by the forms of attention. A form's file includes it
 * after it has defined
 *   scores(type, Q, keys, q, first, count, s)       29.1 for Q = 1, 2 or 4 queries
 *   values(type, Q, keys, first, from, to, p, o)    29.3's o
 *   LARGEST(x, n), EXPS(x, m, p, n)                 the largest; p = exp(x - m) and its SUM32
 *   FORM                                            the name of the function made here
 * Chunks are the outer loop and queries the inner one, so that a prompt's queries find the chunk in
 * the cache; neighbours go in tiles of 4, 2 or 1. */
#include "kernels/attention/attention_row.h"
#include "kernels/func/func_avx2.h"

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
        m[y] = LARGEST(p[y], count[y]);
        l[y] = EXPS(p[y], m[y], p[y], count[y]);
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

/* one instance a type, with the type known to the compiler */
#define INSTANCE(name, type)                                                                       \
    static void name(const struct attention_keys *a, const struct attention_query *query,          \
                     size_t n_queries, void *scratch)                                              \
    {                                                                                              \
        group(type, a, query, n_queries, scratch);                                                 \
    }
INSTANCE(group_f32, KV_F32)
INSTANCE(group_f16, KV_F16)
INSTANCE(group_bf16, KV_BF16)

void FORM(const struct attention_keys *keys, const struct attention_query *query, size_t n_queries,
          void *scratch)
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
