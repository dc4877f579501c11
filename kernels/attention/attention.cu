/* Attention on a card. A block of 256 threads takes up to eight queries that share a kv head over one
 * chunk of 256 keys:
 *   scores   a thread has one key, and the eight lanes of LANE8 of every query in registers;
 *   softmax  a warp has one query: its lanes are SUM32's lanes over the chunk;
 *   values   a thread has two channels of a quarter of the queries, and walks the keys in order.
 * Chunks are merged in ascending order: by the same block, which goes from chunk to chunk (prompts), or
 * by a second kernel from what the chunks' blocks left in scratch (few tokens). */
#include <cuda_runtime.h>

#include "kernels/attention/attention_cuda.h"
#include "kernels/func/func.cuh"
#include "kernels/sum/sum.cuh"

enum {
    THREADS = 256,
    CHUNK = ATTENTION_CHUNK,
    MOST_QUERIES = 8,
    CHANNELS = 128, /* that a block's threads cover at once, two each */
    QUARTERS = 4,
    KEYS_AHEAD = 4,    /* pieces of eight values of a key on their way to a thread */
    VALUES_AHEAD = 16, /* pairs of values, the same */
    MERGE_AHEAD = 8,   /* chunks, the same */
    MOST_DV = 512,
    MERGE_THREADS = 128,
    MOST_BLOCKS = 264, /* of a split's grid: two a multiprocessor of a large card */
    FEW_ITEMS = 64,    /* fewer blocks than half of a large card's multiprocessors */
};
static_assert(CHUNK == THREADS, "a thread has one key");

/* ---- keys and values as they are stored ---- */

template <kv_type T> struct stored;
template <> struct stored<KV_F32> {
    typedef float type;
};
template <> struct stored<KV_F16> {
    typedef uint16_t type;
};
template <> struct stored<KV_BF16> {
    typedef uint16_t type;
};

template <kv_type T> static __device__ __forceinline__ float widen(typename stored<T>::type v)
{
    if constexpr (T == KV_F16)
        return cu_f16(v);
    else if constexpr (T == KV_BF16)
        return cu_bf16(v);
    else
        return v;
}

template <kv_type T> static __device__ __forceinline__ typename stored<T>::type narrow(float v)
{
    if constexpr (T == KV_F16)
        return v == v ? __half_as_ushort(__float2half_rn(v)) : (uint16_t)0x7E00;
    else if constexpr (T == KV_BF16)
        return v == v
                   ? (uint16_t)((__float_as_uint(v) + 0x7FFF + ((__float_as_uint(v) >> 16) & 1)) >>
                                16)
                   : (uint16_t)0x7FC0;
    else
        return cu_canon(v);
}

/* Eight values as they are stored, 16 bytes a load, and widened. */
template <kv_type T> struct eight {
    uint4 raw[T == KV_F32 ? 2 : 1];
};
template <kv_type T>
static __device__ __forceinline__ void load8(const typename stored<T>::type *at, eight<T> *e)
{
#pragma unroll
    for (unsigned i = 0; i < sizeof *e / 16; i++)
        e->raw[i] = ((const uint4 *)at)[i];
}
template <kv_type T> static __device__ __forceinline__ void widen8(const eight<T> &e, float v[8])
{
    if constexpr (T == KV_F32) {
        const uint32_t w[8] = {e.raw[0].x, e.raw[0].y, e.raw[0].z, e.raw[0].w,
                               e.raw[1].x, e.raw[1].y, e.raw[1].z, e.raw[1].w};
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] = __uint_as_float(w[i]);
    } else {
        const uint32_t w[4] = {e.raw[0].x, e.raw[0].y, e.raw[0].z, e.raw[0].w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v[2 * i] = widen<T>((uint16_t)w[i]);
            v[2 * i + 1] = widen<T>((uint16_t)(w[i] >> 16));
        }
    }
}

/* Two neighbouring values, aligned for one load. */
template <kv_type T> struct pair;
template <> struct pair<KV_F32> {
    typedef float2 type;
};
template <> struct pair<KV_F16> {
    typedef uint32_t type;
};
template <> struct pair<KV_BF16> {
    typedef uint32_t type;
};
template <kv_type T> static __device__ __forceinline__ float2 widen2(typename pair<T>::type w)
{
    if constexpr (T == KV_F32)
        return w;
    else
        return make_float2(widen<T>((uint16_t)w), widen<T>((uint16_t)(w >> 16)));
}

/* ---- append ---- */

template <kv_type T>
static __global__ void append(attention_kv a, const float *k, size_t ldk, const float *v,
                              size_t ldv)
{
    typedef typename stored<T>::type cell;
    unsigned i = blockIdx.x * THREADS + threadIdx.x, t = blockIdx.y, keys = a.kv_heads * a.hd;
    size_t base = (size_t)a.seq[t] * a.kv_heads, pos = a.pos[t];

    if (i < keys) {
        unsigned h = i / a.hd, c = i % a.hd;
        ((cell *)a.k)[((base + h) * a.n_ctx + pos) * a.hd + c] = narrow<T>(k[t * ldk + i]);
    } else if (i - keys < a.kv_heads * a.dv) {
        unsigned h = (i - keys) / a.dv, c = (i - keys) % a.dv;
        ((cell *)a.v)[((base + h) * a.n_ctx + pos) * a.dv + c] = narrow<T>(v[t * ldv + (i - keys)]);
    }
}

void kv_append_cuda(const struct attention_kv *a, const float *k, size_t ldk, const float *v,
                    size_t ldv, unsigned n_tokens, cudaStream_t s)
{
    dim3 grid((a->kv_heads * (a->hd + a->dv) + THREADS - 1) / THREADS, n_tokens);

    if (!n_tokens)
        return;
    if (a->type == KV_F16)
        append<KV_F16><<<grid, THREADS, 0, s>>>(*a, k, ldk, v, ldv);
    else if (a->type == KV_BF16)
        append<KV_BF16><<<grid, THREADS, 0, s>>>(*a, k, ldk, v, ldv);
    else
        append<KV_F32><<<grid, THREADS, 0, s>>>(*a, k, ldk, v, ldv);
}

/* ---- one chunk of a few queries ---- */

/* What a block works on: queries of one kv head of one sequence. */
template <kv_type T> struct work {
    const typename stored<T>::type *k, *v; /* the head's row 0 */
    const uint32_t *list;                  /* of the one token, or NULL */
    unsigned hd, dv;
    float scale;
    int wide;   /* rows of keys are aligned for load8 */
    int paired; /* rows of values are aligned for load2 */
};

/* Shared memory: p (8, 256), the rows of the chunk's keys (256), then for every query: m and l of
 * the chunk, the number of its keys; q (8, hd). */
struct shared_parts {
    float *q, *p, *m, *l;
    float *was, *now, *sum; /* walking: the merge's two factors, l so far */
    unsigned *n, *row;
};
static __device__ __forceinline__ shared_parts parts_of(float *base)
{
    shared_parts s;

    s.p = base;
    s.row = (unsigned *)(s.p + MOST_QUERIES * CHUNK);
    s.m = (float *)(s.row + CHUNK);
    s.l = s.m + MOST_QUERIES;
    s.was = s.l + MOST_QUERIES;
    s.now = s.was + MOST_QUERIES;
    s.sum = s.now + MOST_QUERIES;
    s.n = (unsigned *)(s.sum + MOST_QUERIES);
    s.q = (float *)(s.n + MOST_QUERIES);
    return s;
}
static size_t shared_bytes(unsigned hd)
{
    return ((MOST_QUERIES + 1) * CHUNK + 7 * MOST_QUERIES +
            MOST_QUERIES * (size_t)((hd + 3) / 4 * 4)) *
           sizeof(float);
}
/* floats from query to query in shared memory */
static __device__ __forceinline__ unsigned q_pitch(unsigned hd)
{
    return (hd + 3) / 4 * 4;
}

static __device__ __forceinline__ unsigned keys_in(unsigned n, unsigned first)
{
    return n <= first ? 0 : n - first < CHUNK ? n - first : CHUNK;
}

template <kv_type T, int G>
static __device__ __forceinline__ void add_piece(const eight<T> &e, const float *q, unsigned pitch,
                                                 float lane[G][8])
{
    float k[8];

    widen8<T>(e, k);
#pragma unroll
    for (int g = 0; g < G; g++) {
        float4 a = *(const float4 *)(q + g * pitch), b = *(const float4 *)(q + g * pitch + 4);
        lane[g][0] = __fmaf_rn(a.x, k[0], lane[g][0]);
        lane[g][1] = __fmaf_rn(a.y, k[1], lane[g][1]);
        lane[g][2] = __fmaf_rn(a.z, k[2], lane[g][2]);
        lane[g][3] = __fmaf_rn(a.w, k[3], lane[g][3]);
        lane[g][4] = __fmaf_rn(b.x, k[4], lane[g][4]);
        lane[g][5] = __fmaf_rn(b.y, k[5], lane[g][5]);
        lane[g][6] = __fmaf_rn(b.z, k[6], lane[g][6]);
        lane[g][7] = __fmaf_rn(b.w, k[7], lane[g][7]);
    }
}

/* 29.1: this thread's key against G queries, into p. WARM: asks for the key's value, too. */
template <kv_type T, int G, bool WARM>
static __device__ __forceinline__ void scores(const work<T> &w, const shared_parts &s,
                                              unsigned first, unsigned most)
{
    unsigned j = threadIdx.x, pitch = q_pitch(w.hd), i = 0;
    float lane[G][8];

    if (j >= most)
        return;
    unsigned at = w.list ? w.list[first + j] : first + j;
    const typename stored<T>::type *row = w.k + (size_t)at * w.hd;

    s.row[j] = at;
    if (WARM) /* on their way while the scores are made */
        for (unsigned c = 0; c < w.dv; c += 128 / sizeof *row)
            asm volatile("prefetch.global.L2 [%0];" ::"l"(w.v + (size_t)at * w.dv + c));
#pragma unroll
    for (int g = 0; g < G; g++)
#pragma unroll
        for (int l = 0; l < 8; l++)
            lane[g][l] = 0.0f;
    if (w.wide) {
        eight<T> e[KEYS_AHEAD];

        for (; i + 8 * KEYS_AHEAD <= w.hd; i += 8 * KEYS_AHEAD) {
#pragma unroll
            for (int a = 0; a < KEYS_AHEAD; a++)
                load8<T>(row + i + 8 * a, &e[a]);
#pragma unroll
            for (int a = 0; a < KEYS_AHEAD; a++)
                add_piece<T, G>(e[a], s.q + i + 8 * a, pitch, lane);
        }
        for (; i < w.hd; i += 8) {
            load8<T>(row + i, &e[0]);
            add_piece<T, G>(e[0], s.q + i, pitch, lane);
        }
    }
    for (; i < w.hd; i += 8) /* any length */
#pragma unroll
        for (int l = 0; l < 8; l++)
            if (i + l < w.hd) {
                float k = widen<T>(row[i + l]);
#pragma unroll
                for (int g = 0; g < G; g++)
                    lane[g][l] = __fmaf_rn(s.q[g * pitch + i + l], k, lane[g][l]);
            }
#pragma unroll
    for (int g = 0; g < G; g++)
        s.p[g * CHUNK + j] = __fmul_rn(cu_fold8(lane[g]), w.scale);
}

/* 29.3, first half: warp g turns the scores of query g into p, m and l */
static __device__ __forceinline__ void chunk_softmax(const shared_parts &s, int n_queries,
                                                     unsigned first)
{
    int g = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    float e[CHUNK / WARP], m = __int_as_float(0xFF800000), l = 0.0f;
    unsigned count;

    if (g >= n_queries)
        return;
    count = keys_in(s.n[g], first);
#pragma unroll
    for (int i = 0; i < CHUNK / WARP; i++) {
        unsigned j = i * WARP + lane;
        e[i] = j < count ? s.p[g * CHUNK + j] : m;
    }
#pragma unroll
    for (int i = 0; i < CHUNK / WARP; i++)
        m = e[i] > m ? e[i] : m;
    m = cu_warp_max(m);
#pragma unroll
    for (int i = 0; i < CHUNK / WARP; i++) {
        unsigned j = i * WARP + lane;
        if (j < count) {
            e[i] = cu_exp(__fsub_rn(e[i], m));
            l = __fadd_rn(l, e[i]);
            s.p[g * CHUNK + j] = e[i];
        } else {
            s.p[g * CHUNK + j] = 0.0f;
        }
    }
    l = cu_fold32(l);
    if (lane == 0) {
        s.m[g] = m;
        s.l[g] = l;
    }
}

/* 29.3, second half: o of this thread's two channels for G / 4 queries (one, where G is less), keys
 * ascending. Queries g0, g0 + 1, ...; even: keys that all of them have. */
template <kv_type T, int N>
static __device__ __forceinline__ void values(const work<T> &w, const shared_parts &s, int g0,
                                              unsigned first, unsigned channel, unsigned even,
                                              unsigned most, float2 o[N])
{
    const typename stored<T>::type *v = w.v + channel;
    unsigned j = 0;
    int both = channel + 1 < w.dv;

#pragma unroll
    for (int g = 0; g < N; g++)
        o[g] = make_float2(0.0f, 0.0f);
    for (; w.paired && j + VALUES_AHEAD <= even; j += VALUES_AHEAD) {
        typename pair<T>::type raw[VALUES_AHEAD];
#pragma unroll
        for (int a = 0; a < VALUES_AHEAD; a += 4) {
            uint4 at = *(const uint4 *)(s.row + j + a);
            raw[a] = *(const typename pair<T>::type *)(v + (size_t)at.x * w.dv);
            raw[a + 1] = *(const typename pair<T>::type *)(v + (size_t)at.y * w.dv);
            raw[a + 2] = *(const typename pair<T>::type *)(v + (size_t)at.z * w.dv);
            raw[a + 3] = *(const typename pair<T>::type *)(v + (size_t)at.w * w.dv);
        }
#pragma unroll
        for (int a = 0; a < VALUES_AHEAD; a += 4) {
            float2 x0 = widen2<T>(raw[a]), x1 = widen2<T>(raw[a + 1]);
            float2 x2 = widen2<T>(raw[a + 2]), x3 = widen2<T>(raw[a + 3]);
#pragma unroll
            for (int g = 0; g < N; g++) {
                float4 p = *(const float4 *)(s.p + (g0 + g) * CHUNK + j + a);
                o[g].x = __fmaf_rn(p.x, x0.x, o[g].x);
                o[g].y = __fmaf_rn(p.x, x0.y, o[g].y);
                o[g].x = __fmaf_rn(p.y, x1.x, o[g].x);
                o[g].y = __fmaf_rn(p.y, x1.y, o[g].y);
                o[g].x = __fmaf_rn(p.z, x2.x, o[g].x);
                o[g].y = __fmaf_rn(p.z, x2.y, o[g].y);
                o[g].x = __fmaf_rn(p.w, x3.x, o[g].x);
                o[g].y = __fmaf_rn(p.w, x3.y, o[g].y);
            }
        }
    }
    for (; j < most; j++) { /* the tail, where queries end at different keys; odd rows altogether */
        const typename stored<T>::type *at = v + (size_t)s.row[j] * w.dv;
        float2 x = make_float2(widen<T>(at[0]), both ? widen<T>(at[1]) : 0.0f);
#pragma unroll
        for (int g = 0; g < N; g++)
            if (j < keys_in(s.n[g0 + g], first)) {
                float p = s.p[(g0 + g) * CHUNK + j];
                o[g].x = __fmaf_rn(p, x.x, o[g].x);
                o[g].y = __fmaf_rn(p, x.y, o[g].y);
            }
    }
}

/* Where the results of a run of queries go. */
struct run_out {
    float *out[MOST_QUERIES]; /* walk: dv floats of each query's result */
    float *o, *ml;            /* split: chunk results of query g at o + g * dv, ml + g * 2 */
};

/* G queries (the last ones may be doubles of query n_queries - 1, whose results are dropped) over
 * the chunks that begin at key `from`, up to key `to`; the channels of tile0 ... tile1 - 1
 * (CHANNELS each). WALK: one tile, merged and finished into out; else one chunk, left as m, l, o.
 * s.q and s.n are filled, a barrier behind. */
template <kv_type T, int G, bool WALK>
static __device__ __forceinline__ void run_queries(const work<T> &w, const shared_parts &s,
                                                   int n_queries, unsigned from, unsigned to,
                                                   unsigned tile0, unsigned tile1, const run_out &r)
{
    enum { N = (G + QUARTERS - 1) / QUARTERS };
    int quarter = threadIdx.x / (CHANNELS / 2), g0 = quarter * N;
    unsigned channel = 2 * (threadIdx.x % (CHANNELS / 2)), least = 0xFFFFFFFFu;
    float2 acc[N];
    float M = 0.0f, l = 0.0f; /* of query threadIdx.x, the first G threads */

    for (int g = 0; g < n_queries; g++)
        least = s.n[g] < least ? s.n[g] : least;
    for (unsigned first = from; first < to; first += CHUNK) {
        unsigned most = keys_in(to, first), even = keys_in(least, first);

        scores<T, G, !WALK>(w, s, first, most);
        __syncthreads();
        chunk_softmax(s, G, first);
        __syncthreads();
        if (WALK) { /* 29.4: factors of the merge, a thread a query */
            if (threadIdx.x < G && keys_in(s.n[threadIdx.x], first)) {
                float m_c = s.m[threadIdx.x], l_c = s.l[threadIdx.x];
                if (first == from) {
                    M = m_c;
                    l = l_c;
                } else {
                    float top = M > m_c ? M : m_c;
                    float was = cu_exp(__fsub_rn(M, top)), now = cu_exp(__fsub_rn(m_c, top));
                    s.was[threadIdx.x] = was;
                    s.now[threadIdx.x] = now;
                    l = __fmaf_rn(l, was, __fmul_rn(l_c, now));
                    M = top;
                }
                s.sum[threadIdx.x] = l;
            }
            __syncthreads();
        }
        for (unsigned tile = tile0; tile < tile1 && g0 < n_queries; tile++) {
            unsigned c = tile * CHANNELS + channel;
            float2 o[N];

            if (c >= w.dv)
                break;
            values<T, N>(w, s, g0, first, c, even, most, o);
#pragma unroll
            for (int g = 0; g < N; g++) {
                if (!WALK) {
                    if (g0 + g < n_queries) {
                        r.o[(size_t)(g0 + g) * w.dv + c] = o[g].x;
                        if (c + 1 < w.dv)
                            r.o[(size_t)(g0 + g) * w.dv + c + 1] = o[g].y;
                    }
                } else if (first == from) {
                    acc[g] = o[g];
                } else if (keys_in(s.n[g0 + g], first)) {
                    float was = s.was[g0 + g], now = s.now[g0 + g];
                    acc[g].x = __fmaf_rn(acc[g].x, was, __fmul_rn(o[g].x, now));
                    acc[g].y = __fmaf_rn(acc[g].y, was, __fmul_rn(o[g].y, now));
                }
            }
        }
        if (!WALK && threadIdx.x < (unsigned)n_queries) {
            r.ml[2 * threadIdx.x] = s.m[threadIdx.x];
            r.ml[2 * threadIdx.x + 1] = s.l[threadIdx.x];
        }
        __syncthreads();
    }
    if (WALK && g0 < n_queries && tile0 * CHANNELS + channel < w.dv) { /* 29.6 */
        unsigned c = tile0 * CHANNELS + channel;
#pragma unroll
        for (int g = 0; g < N; g++)
            if (g0 + g < n_queries) {
                float div = s.sum[g0 + g], *out = r.out[g0 + g];
                out[c] = cu_canon(__fadd_rn(__fdiv_rn(acc[g].x, div), 0.0f));
                if (c + 1 < w.dv)
                    out[c + 1] = cu_canon(__fadd_rn(__fdiv_rn(acc[g].y, div), 0.0f));
            }
    }
    __syncthreads();
}

struct attention_args {
    attention_kv a;
    const float *q;
    float *out;
    size_t ldq, ldo;
    unsigned heads, group, n_tokens; /* group: heads of a kv head */
    float scale;
    float *o, *ml;   /* split: (n_tokens, chunks, heads, dv) and (n_tokens, chunks, heads, 2) */
    unsigned chunks; /* room for */
};

/* how many, then rows; NULL: all */
static __device__ __forceinline__ const uint32_t *list_of(const attention_args &x, unsigned t)
{
    const uint32_t *list = x.a.list ? x.a.list + t * x.a.list_ld : NULL;

    return list && *list != ATTENTION_LIST_ALL ? list : NULL;
}

static __device__ __forceinline__ unsigned keys_of(const attention_args &x, unsigned t)
{
    const uint32_t *list = list_of(x, t);

    return list ? *list : x.a.pos[t] + 1;
}

template <kv_type T>
static __device__ __forceinline__ work<T> work_of(const attention_args &x, unsigned t,
                                                  unsigned kv_head)
{
    typedef typename stored<T>::type cell;
    size_t row0 = ((size_t)x.a.seq[t] * x.a.kv_heads + kv_head) * x.a.n_ctx;
    work<T> w;

    w.k = (const cell *)x.a.k + row0 * x.a.hd;
    w.v = (const cell *)x.a.v + row0 * x.a.dv;
    w.list = list_of(x, t);
    w.list += w.list != NULL; /* behind their number */
    w.hd = x.a.hd;
    w.dv = x.a.dv;
    w.scale = x.scale;
    w.wide = x.a.hd % 8 == 0;
    w.paired = x.a.dv % 2 == 0;
    return w;
}

/* query g of a run: head0 + g % per of token t0 + g / per */
static __device__ __forceinline__ void fill_queries(const attention_args &x, const shared_parts &s,
                                                    int G, int n_queries, unsigned t0,
                                                    unsigned head0, unsigned per)
{
    unsigned pitch = q_pitch(x.a.hd);

    for (unsigned base = threadIdx.x; base < G * x.a.hd; base += 4 * THREADS) {
        float v[4];
#pragma unroll
        for (unsigned k = 0; k < 4; k++) { /* four on their way */
            unsigned i = base + k * THREADS, g = i / x.a.hd, c = i % x.a.hd;
            unsigned real = g < (unsigned)n_queries ? g : n_queries - 1;
            v[k] = x.q[(t0 + real / per) * x.ldq + (size_t)(head0 + real % per) * x.a.hd + c];
        }
#pragma unroll
        for (unsigned k = 0; k < 4; k++) {
            unsigned i = base + k * THREADS, g = i / x.a.hd, c = i % x.a.hd;
            if (g < (unsigned)G)
                s.q[g * pitch + c] = v[k];
        }
    }
    if (threadIdx.x < (unsigned)G) {
        unsigned real = threadIdx.x < (unsigned)n_queries ? threadIdx.x : n_queries - 1;
        s.n[threadIdx.x] = keys_of(x, t0 + real / per);
    }
    __syncthreads();
}

template <kv_type T, int G, bool WALK>
static __device__ __forceinline__ void
run_some(const attention_args &x, const shared_parts &s, int n_queries, unsigned t0, unsigned head0,
         unsigned per, unsigned kv_head, unsigned from, unsigned to, unsigned tile0, unsigned tile1,
         const run_out &r)
{
    work<T> w = work_of<T>(x, t0, kv_head);

    fill_queries(x, s, G, n_queries, t0, head0, per);
    run_queries<T, G, WALK>(w, s, n_queries, from, to, tile0, tile1, r);
}

/* ---- few tokens: a chunk is a block's work ---- */

/* The queries of one kv head of a token, G at a time, over one chunk each: item (chunk, token, kv
 * head, part of its heads), the parts side by side so that they share what L2 holds. */
template <kv_type T, int G>
static __device__ __forceinline__ void split_items(const attention_args &x, const shared_parts &s,
                                                   unsigned chunks)
{
    unsigned parts = (x.group + G - 1) / G, items = x.n_tokens * x.a.kv_heads * parts * chunks;

    for (unsigned item = blockIdx.x; item < items; item += gridDim.x) {
        unsigned part = item % parts, kv_head = item / parts % x.a.kv_heads;
        unsigned t = item / parts / x.a.kv_heads % x.n_tokens;
        unsigned chunk = item / parts / x.a.kv_heads / x.n_tokens, n = keys_of(x, t), to;
        unsigned head0 = kv_head * x.group + part * G;
        unsigned left = x.group - part * G, queries = left < G ? left : G;
        run_out r;

        if (chunk * CHUNK >= n)
            continue;
        to = n - chunk * CHUNK < CHUNK ? n : (chunk + 1) * CHUNK;
        r.o = x.o + (((size_t)t * x.chunks + chunk) * x.heads + head0) * x.a.dv;
        r.ml = x.ml + (((size_t)t * x.chunks + chunk) * x.heads + head0) * 2;
        run_some<T, G, false>(x, s, queries, t, head0, queries, kv_head, chunk * CHUNK, to, 0,
                              (x.a.dv + CHANNELS - 1) / CHANNELS, r);
    }
}

/* As many items as the contexts have now, taken in turn by the blocks. Where they would leave most
 * of the card idle, each query is an item. */
template <kv_type T> static __global__ void __launch_bounds__(THREADS) split(attention_args x)
{
    extern __shared__ __align__(16) float memory[];
    shared_parts s = parts_of(memory);
    unsigned longest = 0, chunks;

    for (unsigned t = 0; t < x.n_tokens; t++)
        longest = keys_of(x, t) > longest ? keys_of(x, t) : longest;
    chunks = (longest + CHUNK - 1) / CHUNK;
    if (x.group == 1 ||
        chunks * x.n_tokens * x.a.kv_heads * ((x.group + MOST_QUERIES - 1) / MOST_QUERIES) <
            FEW_ITEMS)
        split_items<T, 1>(x, s, chunks);
    else
        split_items<T, MOST_QUERIES>(x, s, chunks);
}

/* 29.4 and 29.6 over what split left: a block has one head of one token, a thread its channels. The
 * factors of 128 chunks at a time are made side by side: a running maximum does not round. */
static __global__ void __launch_bounds__(MERGE_THREADS) merge(attention_args x)
{
    __shared__ float was[MERGE_THREADS], now[MERGE_THREADS], l_of[MERGE_THREADS],
        top_of[MERGE_THREADS / WARP];
    enum { MINE = MOST_DV / MERGE_THREADS };
    unsigned h = blockIdx.x, t = blockIdx.y, tid = threadIdx.x;
    unsigned n = (keys_of(x, t) + CHUNK - 1) / CHUNK;
    const float *ml = x.ml + ((size_t)t * x.chunks * x.heads + h) * 2;
    const float *o = x.o + ((size_t)t * x.chunks * x.heads + h) * x.a.dv;
    size_t ml_step = (size_t)x.heads * 2, o_step = (size_t)x.heads * x.a.dv;
    float l = 0.0f, M = __int_as_float(0xFF800000), acc[MINE];

    for (unsigned base = 0; base < n; base += MERGE_THREADS) {
        unsigned c = base + tid,
                 count = n - base < MERGE_THREADS ? n - base : (unsigned)MERGE_THREADS;
        float m_c = c < n ? ml[c * ml_step] : __int_as_float(0xFF800000), top = m_c, before;

        for (int d = 1; d < WARP; d *= 2) { /* the maximum of this chunk and all before it */
            float o_top = __shfl_up_sync(WARP_ALL, top, d);
            if ((tid % WARP) >= (unsigned)d)
                top = o_top > top ? o_top : top;
        }
        if (tid % WARP == WARP - 1)
            top_of[tid / WARP] = top;
        __syncthreads();
        before = M;
        for (unsigned v = 0; v < tid / WARP; v++)
            before = top_of[v] > before ? top_of[v] : before;
        { /* the maximum of all chunks before this one */
            float left = __shfl_up_sync(WARP_ALL, top, 1);
            float first = before;
            top = before > top ? before : top;
            before = tid % WARP && left > first ? left : first;
        }
        if (c < n) {
            was[tid] = c ? cu_exp(__fsub_rn(before, top)) : 0.0f;
            now[tid] = cu_exp(__fsub_rn(m_c, top));
            l_of[tid] = ml[c * ml_step + 1];
        }
        for (unsigned v = 0; v < MERGE_THREADS / WARP; v++)
            M = top_of[v] > M ? top_of[v] : M;
        __syncthreads();
        for (unsigned i = 0; i < count; i++)
            l = base + i ? __fmaf_rn(l, was[i], __fmul_rn(l_of[i], now[i])) : l_of[0];
#pragma unroll
        for (int k = 0; k < MINE; k++) {
            unsigned ch = tid + k * MERGE_THREADS;
            if (ch >= x.a.dv)
                break;
            float a = acc[k];
            unsigned i = 0;
            for (; i + MERGE_AHEAD <= count; i += MERGE_AHEAD) {
                float v[MERGE_AHEAD];
#pragma unroll
                for (unsigned c = 0; c < MERGE_AHEAD; c++)
                    v[c] = o[(size_t)(base + i + c) * o_step + ch];
#pragma unroll
                for (unsigned c = 0; c < MERGE_AHEAD; c++)
                    a = base + i + c ? __fmaf_rn(a, was[i + c], __fmul_rn(v[c], now[i + c])) : v[c];
            }
            for (; i < count; i++) {
                float v = o[(size_t)(base + i) * o_step + ch];
                a = base + i ? __fmaf_rn(a, was[i], __fmul_rn(v, now[i])) : v;
            }
            acc[k] = a;
        }
        __syncthreads();
    }
#pragma unroll
    for (int k = 0; k < MINE; k++) {
        unsigned ch = tid + k * MERGE_THREADS;
        if (ch < x.a.dv)
            x.out[t * x.ldo + (size_t)h * x.a.dv + ch] =
                cu_canon(__fadd_rn(__fdiv_rn(acc[k], l), 0.0f));
    }
}

/* ---- prompts: a block walks its queries' chunks ---- */

/* Block: (group of neighbouring tokens, part of the heads of a kv head, tile of channels). Tokens
 * of a group that belong to other sequences are taken one run after the other. */
template <kv_type T> static __global__ void __launch_bounds__(THREADS) walk(attention_args x)
{
    enum { G = MOST_QUERIES };
    extern __shared__ __align__(16) float memory[];
    shared_parts s = parts_of(memory);
    unsigned per = x.group < (unsigned)G ? x.group : (unsigned)G; /* heads of a token in a block */
    unsigned tokens = x.a.list ? 1 : G / per, parts = (x.group + per - 1) / per;
    unsigned kv_head = blockIdx.y / parts, part = blockIdx.y % parts;
    unsigned head0 = kv_head * x.group + part * per, left = x.group - part * per;
    unsigned heads = left < per ? left : per;
    unsigned t = blockIdx.x * tokens, end = t + tokens < x.n_tokens ? t + tokens : x.n_tokens;

    while (t < end) {
        unsigned t0 = t, to = 0;
        run_out r;

        for (; t < end && x.a.seq[t] == x.a.seq[t0]; t++)
            to = keys_of(x, t) > to ? keys_of(x, t) : to;
        for (unsigned g = 0; g < (t - t0) * heads; g++)
            r.out[g] = x.out + (t0 + g / heads) * x.ldo + (size_t)(head0 + g % heads) * x.a.dv;
        run_some<T, G, true>(x, s, (t - t0) * heads, t0, head0, heads, kv_head, 0, to, blockIdx.z,
                             blockIdx.z + 1, r);
    }
}

#include "kernels/attention/tiles.cuh"

/* ---- launches ---- */

size_t attention_cuda_scratch(unsigned n_tokens, unsigned heads, unsigned dv, unsigned n_ctx)
{
    size_t chunks = ((size_t)n_ctx + CHUNK - 1) / CHUNK;

    if (n_tokens > ATTENTION_SPLIT_TOKENS)
        return 0;
    return n_tokens * chunks * heads * ((size_t)dv + 2) * sizeof(float);
}

typedef void kernel_fn(attention_args);

static kernel_fn *kernel_of(kv_type type, int walks)
{
    if (type == KV_F16)
        return walks ? walk<KV_F16> : split<KV_F16>;
    if (type == KV_BF16)
        return walks ? walk<KV_BF16> : split<KV_BF16>;
    return walks ? walk<KV_F32> : split<KV_F32>;
}
static kernel_fn *tiles_of(kv_type type, int several)
{
    if (several)
        return type == KV_F16 ? tiles<KV_F16, TILE_WARPS, SEVERAL_TILES> : tiles<KV_BF16, TILE_WARPS, SEVERAL_TILES>;
    return type == KV_F16 ? tiles<KV_F16, TILE_WARPS, 1> : tiles<KV_BF16, TILE_WARPS, 1>;
}

static cudaError_t shared_there(int *most)
{
    int dev;
    cudaError_t rc = cudaGetDevice(&dev);

    return rc ? rc : cudaDeviceGetAttribute(most, cudaDevAttrMaxSharedMemoryPerBlockOptin, dev);
}

int attention_cuda_ready(void)
{
    static const kv_type types[] = {KV_F32, KV_F16, KV_BF16};
    cudaFuncAttributes f;
    int most;
    cudaError_t rc = shared_there(&most);

    if (!rc)
        rc = cudaFuncGetAttributes(&f, merge);
    for (int i = 0; i < 6 && !rc; i++)
        rc = cudaFuncGetAttributes(&f, kernel_of(types[i / 2], i % 2));
    for (int i = 0; i < 4 && !rc; i++)
        rc = cudaFuncSetAttribute(tiles_of(types[1 + i / 2], i % 2), cudaFuncAttributeMaxDynamicSharedMemorySize, most);
    return rc;
}

/* Prompts of keys of two bytes, where there is room: launched, or not. */
static int launch_tiles(const attention_args &x, cudaStream_t s)
{
    enum { G = TILE_WARPS * WARP_QUERIES };
    const unsigned per = x.group < (unsigned)G ? x.group : (unsigned)G, tokens = x.a.list ? 1 : G / per;
    const unsigned parts = (x.group + per - 1) / per, several = x.a.dv > TILE_DIMS;
    const unsigned channels = several ? SEVERAL_TILES * TILE_DIMS : TILE_DIMS;
    const dim3 grid((x.n_tokens + tokens - 1) / tokens, x.a.kv_heads * parts, (x.a.dv + channels - 1) / channels);
    const size_t bytes = tiles_shared<TILE_WARPS>(x.a.hd);
    int most;

    if (x.a.type == KV_F32 || x.a.hd % 16 || x.a.dv % 8 || per * tokens <= MOST_QUERIES || shared_there(&most) ||
        bytes > (size_t)most)
        return 0;
    tiles_of(x.a.type, several)<<<grid, TILE_WARPS * WARP, bytes, s>>>(x);
    return 1;
}

void attention_cuda(const struct attention_kv *a, const float *q, size_t ldq, unsigned heads,
                    float scale, float *out, size_t ldo, unsigned n_tokens, void *scratch,
                    cudaStream_t s)
{
    attention_args x = {};
    size_t bytes = shared_bytes(a->hd);

    if (!n_tokens)
        return;
    x.a = *a;
    x.q = q;
    x.ldq = ldq;
    x.out = out;
    x.ldo = ldo;
    x.heads = heads;
    x.group = heads / a->kv_heads;
    x.n_tokens = n_tokens;
    x.scale = scale;
    if (n_tokens > ATTENTION_SPLIT_TOKENS) {
        if (launch_tiles(x, s))
            return;
        unsigned per = x.group < MOST_QUERIES ? x.group : (unsigned)MOST_QUERIES;
        unsigned tokens = a->list ? 1 : MOST_QUERIES / per, parts = (x.group + per - 1) / per;
        dim3 grid((n_tokens + tokens - 1) / tokens, a->kv_heads * parts,
                  (a->dv + CHANNELS - 1) / CHANNELS);

        kernel_of(a->type, 1)<<<grid, THREADS, bytes, s>>>(x);
        return;
    }
    x.chunks = (a->n_ctx + CHUNK - 1) / CHUNK;
    x.o = (float *)scratch;
    x.ml = x.o + (size_t)n_tokens * x.chunks * heads * a->dv;
    {
        size_t items = (size_t)n_tokens * heads * x.chunks; /* the most */
        unsigned grid = items < MOST_BLOCKS ? (unsigned)items : (unsigned)MOST_BLOCKS;

        kernel_of(a->type, 0)<<<grid, THREADS, bytes, s>>>(x);
        merge<<<dim3(heads, n_tokens), MERGE_THREADS, 0, s>>>(x);
    }
}
