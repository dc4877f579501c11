/* Attention as rule 29 defines it: one query after the other, one chunk after the other. */
#include "kernels/attention/attention.h"

#include "kernels/cpu.h"
#include "kernels/func/func.h"
#include "kernels/num.h"
#include "kernels/sum/sum.h"

#include <math.h>

size_t kv_bytes(enum kv_type type, size_t n)
{
    return n * (type == KV_F32 ? 4 : 2);
}

static float kv_get(enum kv_type type, const void *row, size_t i)
{
    const char *at = (const char *)row + kv_bytes(type, i);

    switch (type) {
    case KV_F16:
        return f16_to_f32(load_u16(at));
    case KV_BF16:
        return bf16_to_f32(load_u16(at));
    default:
        return load_f32(at);
    }
}

void kv_load(enum kv_type type, const void *in, size_t n, float *x)
{
    for (size_t i = 0; i < n; i++)
        x[i] = kv_get(type, in, i);
}

void kv_store_ref(enum kv_type type, const float *x, size_t n, void *out)
{
    for (size_t i = 0; i < n; i++) {
        char *at = (char *)out + kv_bytes(type, i);
        float full = f32_canon(x[i]);
        uint16_t half = type == KV_F16 ? f32_to_f16(x[i]) : f32_to_bf16(x[i]);

        if (type == KV_F32)
            memcpy(at, &full, sizeof full);
        else
            memcpy(at, &half, sizeof half);
    }
}

/* 29.1: LANE8 over the head dimension, then the scale */
static float score(const struct attention_keys *a, const float *q, const void *k)
{
    float lane[8] = {0};

    for (size_t i = 0; i < a->hd; i++)
        lane[i % 8] = fmaf(q[i], kv_get(a->type, k, i), lane[i % 8]);
    return (((lane[0] + lane[4]) + (lane[2] + lane[6])) +
            ((lane[1] + lane[5]) + (lane[3] + lane[7]))) *
           a->scale;
}

static size_t row_of(const struct attention_keys *a, size_t j)
{
    return a->list ? a->list[j] : j;
}

/* 29.3: keys first ... first + count - 1, which are one chunk. Returns m; *l, and o (dv floats). */
static float chunk(const struct attention_keys *a, const float *q, size_t first, size_t count,
                   float *l, float *o)
{
    float p[ATTENTION_CHUNK], m = 0.0f;

    for (size_t j = 0; j < count; j++) {
        p[j] = score(a, q, (const char *)a->k + row_of(a, first + j) * a->k_stride);
        m = j == 0 || p[j] > m ? p[j] : m;
    }
    for (size_t j = 0; j < count; j++)
        p[j] = f_exp(p[j] - m);
    *l = sum32_ref(p, count);
    for (size_t i = 0; i < a->dv; i++)
        o[i] = 0.0f;
    for (size_t j = 0; j < count; j++) {
        const char *v = (const char *)a->v + row_of(a, first + j) * a->v_stride;

        for (size_t i = 0; i < a->dv; i++)
            o[i] = fmaf(p[j], kv_get(a->type, v, i), o[i]);
    }
    return m;
}

static void one_query(const struct attention_keys *a, const struct attention_query *query, float *o)
{
    float *out = query->out, M = 0.0f, l = 0.0f;

    for (size_t first = 0; first < query->n; first += ATTENTION_CHUNK) { /* 29.4 */
        size_t left = query->n - first, count = left < ATTENTION_CHUNK ? left : ATTENTION_CHUNK;
        float l_c, m_c, new_M, e_old, e_new;

        if (first == 0) {
            M = chunk(a, query->q, 0, count, &l, out);
            continue;
        }
        m_c = chunk(a, query->q, first, count, &l_c, o);
        new_M = M > m_c ? M : m_c;
        e_old = f_exp(M - new_M);
        e_new = f_exp(m_c - new_M);
        l = fmaf(l, e_old, l_c * e_new);
        for (size_t i = 0; i < a->dv; i++)
            out[i] = fmaf(out[i], e_old, o[i] * e_new);
        M = new_M;
    }
    for (size_t i = 0; i < a->dv; i++) /* 29.6 */
        out[i] = f32_canon(out[i] / l + 0.0f);
}

void attention_group_ref(const struct attention_keys *keys, const struct attention_query *query,
                         size_t n_queries, void *scratch)
{
    for (size_t i = 0; i < n_queries; i++)
        one_query(keys, &query[i], scratch);
}

/* M and l of every query, then for four queries at a time p of one chunk and o of one chunk: the
 * fast forms' layout; the reference needs one o. */
size_t attention_group_scratch(size_t n_queries, size_t dv)
{
    size_t state = 2 * n_queries, p = 4 * ATTENTION_CHUNK, o = 4 * dv;

    return ((state + 15) / 16 * 16 + p + (o + 15) / 16 * 16) * sizeof(float);
}

size_t attention_scratch(size_t dv)
{
    return attention_group_scratch(1, dv);
}

void attention_group(const struct attention_keys *keys, const struct attention_query *query,
                     size_t n_queries, void *scratch)
{
    switch (cpu_level()) {
    case CPU_VBMI:
    case CPU_AVX512:
        attention_group_avx512(keys, query, n_queries, scratch);
        break;
    case CPU_AVX2:
        attention_group_avx2(keys, query, n_queries, scratch);
        break;
    default:
        attention_group_ref(keys, query, n_queries, scratch);
    }
}

void attention(enum kv_type type, const float *q, const void *k, const void *v, size_t k_stride,
               size_t v_stride, size_t n, size_t hd, size_t dv, float scale, float *out,
               void *scratch)
{
    struct attention_keys keys = {.type = type,
                                  .k = k,
                                  .v = v,
                                  .k_stride = k_stride,
                                  .v_stride = v_stride,
                                  .hd = hd,
                                  .dv = dv,
                                  .scale = scale};
    struct attention_query query = {.q = q, .out = out, .n = n};

    attention_group(&keys, &query, 1, scratch);
}

void kv_store(enum kv_type type, const float *x, size_t n, void *out)
{
    cpu_level() >= CPU_AVX2 ? kv_store_avx2(type, x, n, out) : kv_store_ref(type, x, n, out);
}
