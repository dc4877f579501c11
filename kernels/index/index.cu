/* Pooled keys: a thread has one channel. Scores: eight threads have a pool, thread l the elements
 * l, l + 8, ... of its key, which is LANE8's lane l; three exchanges fold (additions commute). Lists: a
 * block has a token. */
#include "kernels/func/func.cuh"
#include "kernels/sum/sum.cuh"
#include "kernels/index/index_cuda.h"
#include "kernels/topk/order.cuh"

enum { THREADS = 256, LANES = 8, SCORE_BLOCKS = 128, CHOOSERS = 1024 };

/* The pooled key's channel i over members whose channel is key(s), gate(s), bias included. */
template <class Key, class Gate>
static __device__ __forceinline__ float gated(unsigned count, const Key &key, const Gate &gate)
{
    float acc = 0.0f, m = 0.0f, lane[32];

    for (unsigned s = 0; s < count; s++) {
        float a = gate(s);
        m = s == 0 || a > m ? a : m;
    }
    for (int l = 0; l < 32; l++) /* rule 25's sum: SUM32 over the members */
        lane[l] = 0.0f;
    for (unsigned s0 = 0; s0 < count; s0 += 32)
#pragma unroll
        for (unsigned l = 0; l < 32; l++)
            if (s0 + l < count)
                lane[l] = __fadd_rn(lane[l], cu_exp(__fsub_rn(gate(s0 + l), m)));
#pragma unroll
    for (int h = 16; h; h /= 2)
#pragma unroll
        for (int j = 0; j < h; j++)
            lane[j] = __fadd_rn(lane[j], lane[j + h]);
    for (unsigned s = 0; s < count; s++) {
        float p = __fdiv_rn(cu_exp(__fsub_rn(gate(s), m)), lane[0]);
        acc = __fmaf_rn(p, key(s), acc);
    }
    return cu_canon(acc);
}

static __global__ void pools(const float *key, const float *gate, size_t ld, const float *bias,
                             const uint32_t *first, unsigned count, size_t d, float *pk)
{
    size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x, row0 = first[blockIdx.y];
    float acc = 0.0f;

    if (i >= d)
        return;
    if (gate) {
        pk[blockIdx.y * d + i] = gated(
            count, [=](unsigned s) { return key[(row0 + s) * ld + i]; },
            [=](unsigned s) {
                float g = gate[(row0 + s) * ld + i];
                return bias ? __fadd_rn(g, bias[s * d + i]) : g;
            });
        return;
    }
    for (unsigned s = 0; s < count; s++)
        acc = __fadd_rn(acc, key[(row0 + s) * ld + i]);
    pk[blockIdx.y * d + i] = cu_canon(__fdiv_rn(acc, (float)count));
}

/* Grid: channels, tokens. */
static __global__ void pools_of_runs(struct pools_runs_cuda p)
{
    unsigned i = blockIdx.x * THREADS + threadIdx.x, t = blockIdx.y, k = 0, first;
    run r;

    if (i >= p.d)
        return;
    while (t >= p.tails.run[k].first + p.tails.run[k].n)
        k++;
    r = p.tails.run[k];
    first = r.pos + (t - r.first) + 1;
    if (first % p.count)
        return;
    first -= p.count; /* position of its first member */
    const float *tail = p.tails.base + r.seq * p.tails.seq_floats + (size_t)r.from * p.tails.keep * p.tails.n + i;
    auto member = [=](unsigned s, const float *rows, unsigned behind) {
        unsigned pos = first + s;
        return pos >= r.pos ? rows[(size_t)(r.first + pos - r.pos) * p.d + i]
                            : tail[(size_t)(pos % p.tails.keep) * p.tails.n + behind];
    };
    p.pools[r.seq * p.seq_floats + (size_t)(first / p.count) * p.d + i] =
        gated(
            p.count, [=](unsigned s) { return member(s, p.key, 0); },
            [=](unsigned s) {
                float g = member(s, p.gate, p.d);
                return p.bias ? __fadd_rn(g, p.bias[s * p.d + i]) : g;
            });
}

/* Value i of position `first` + s: the batch's or the tail's. */
static __device__ __forceinline__ float key_of(const struct mean_runs_cuda &p, run r, unsigned pos, unsigned i)
{
    const float *tail = p.tails.base + r.seq * p.tails.seq_floats + (size_t)r.from * p.tails.keep * p.tails.n;

    return pos >= r.pos ? p.key[(size_t)(r.first + pos - r.pos) * p.d + i]
                        : tail[(size_t)(pos % p.tails.keep) * p.tails.n + i];
}

/* A block a token; its first warp is SUM32. */
static __global__ void means_of_runs(struct mean_runs_cuda p)
{
    extern __shared__ float pk[];
    __shared__ float shared;
    unsigned t = blockIdx.x, k = 0, first;
    float *out;
    run r;

    while (t >= p.tails.run[k].first + p.tails.run[k].n)
        k++;
    r = p.tails.run[k];
    first = r.pos + (t - r.first) + 1;
    if (first % p.count)
        return;
    first -= p.count;
    for (unsigned i = threadIdx.x; i < p.d; i += THREADS) {
        float acc = 0.0f;
        for (unsigned s = 0; s < p.count; s++)
            acc = __fadd_rn(acc, key_of(p, r, first + s, i));
        pk[i] = cu_canon(__fdiv_rn(acc, (float)p.count));
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        float ss = cu_squares32(pk, p.d);
        if (threadIdx.x == 0)
            shared = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(ss, (float)p.d), p.eps)));
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < p.d; i += THREADS)
        pk[i] = cu_canon(__fmul_rn(__fmul_rn(pk[i], shared), p.norm[i]));
    __syncthreads();
    out = p.pools + r.seq * p.seq_floats + (size_t)(first / p.count) * p.d;
    for (unsigned i = threadIdx.x; i < p.d; i += THREADS) {
        unsigned pair = i < p.half ? i : i - p.half;
        float c = i < 2 * p.half ? p.cos[(size_t)first * p.half + pair] : 1.0f;
        float s = i < 2 * p.half ? p.sin[(size_t)first * p.half + pair] : 0.0f;
        if (i < p.half)
            out[i] = cu_canon(__fmaf_rn(-pk[i + p.half], s, __fmul_rn(pk[i], c)));
        else if (i < 2 * p.half)
            out[i] = cu_canon(__fmaf_rn(pk[pair], s, __fmul_rn(pk[i], c)));
        else
            out[i] = pk[i];
    }
}

/* Token t's first n pools. */
static __device__ __forceinline__ void score_pools(const float *q, const float *w, const float *pk, size_t stride,
                                                   unsigned n, unsigned n_heads, unsigned d, float scale,
                                                   float *score, size_t lds)
{
    unsigned l = threadIdx.x % LANES, per = THREADS / LANES, t = blockIdx.y;

    q += (size_t)t * n_heads * d;
    for (unsigned b0 = blockIdx.x * per; b0 < n; b0 += gridDim.x * per) {
        unsigned b = b0 + threadIdx.x / LANES;
        const float *key = pk + (size_t)(b < n ? b : 0) * stride;
        float acc = 0.0f;

        for (unsigned h = 0; h < n_heads; h++) {
            float lane = 0.0f, v;
#pragma unroll 4
            for (unsigned i = l; i < d; i += LANES)
                lane = __fmaf_rn(q[h * d + i], key[i], lane);
            for (int x = LANES / 2; x; x /= 2)
                lane = __fadd_rn(lane, __shfl_xor_sync(~0u, lane, x));
            v = cu_relu(__fmul_rn(lane, scale));
            acc = w ? __fmaf_rn(w[(size_t)t * n_heads + h], v, acc) : __fadd_rn(acc, v);
        }
        if (b < n && l == 0)
            score[t * lds + b] = cu_canon(acc);
    }
}

static __global__ void scores(const float *q, const float *w, const float *pk, size_t stride,
                              const uint32_t *n_pools, unsigned n_heads, unsigned d, float scale,
                              float *score, size_t lds)
{
    score_pools(q, w, pk, stride, n_pools[blockIdx.y], n_heads, d, scale, score, lds);
}

/* ---- lists ---- */

static __device__ __forceinline__ unsigned pools_at(const struct index_lists_cuda &x, unsigned t)
{
    unsigned full = (x.pos[t] + 1) / x.count;

    return full > x.most ? full : 0; /* else all are chosen */
}

static __global__ void score_lists(struct index_lists_cuda x)
{
    unsigned t = blockIdx.y;

    score_pools(x.q, x.w, x.pools + x.seq[t] * x.seq_floats, x.d, pools_at(x, t), x.n_heads, x.d, x.scale, x.score,
                x.lds);
}

/* The smallest key among the first `most` of n scores: digit by digit from the top, the block counts how many keys
 * that agree so far have each digit. Keys differ, so it ends with exactly `most` keys from this one up. */
static __device__ unsigned long long smallest_chosen(const float *score, unsigned n, unsigned most)
{
    enum { DIGIT = 8, DIGITS = 1 << DIGIT };
    __shared__ unsigned found[DIGITS], left_s, digit_s, done_s;
    unsigned long long prefix = 0;
    unsigned left = most;

    for (int shift = 64 - DIGIT; shift >= 0; shift -= DIGIT) {
        for (unsigned i = threadIdx.x; i < DIGITS; i += CHOOSERS)
            found[i] = 0;
        __syncthreads();
        for (unsigned i0 = 0; i0 < n; i0 += CHOOSERS) {
            unsigned i = i0 + threadIdx.x, digit = DIGITS; /* none */
            if (i < n) {
                unsigned long long key = order_place(score[i], i);
                if (shift == 64 - DIGIT || key >> (shift + DIGIT) == prefix >> (shift + DIGIT))
                    digit = (unsigned)(key >> shift) % DIGITS;
            }
            unsigned same = __match_any_sync(~0u, digit); /* many agree: one adds for them */
            if (digit < DIGITS && (threadIdx.x & 31) == (unsigned)__ffs(same) - 1)
                atomicAdd(&found[digit], __popc(same));
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            unsigned d = DIGITS - 1;
            while (found[d] < left)
                left -= found[d--];
            digit_s = d;
            done_s = found[d] == left;
            left_s = left;
        }
        __syncthreads();
        prefix |= (unsigned long long)digit_s << shift;
        left = left_s;
        if (done_s)
            break;
    }
    return prefix;
}

/* A block has a token. */
static __global__ void __launch_bounds__(CHOOSERS) choose_lists(struct index_lists_cuda x)
{
    __shared__ unsigned of_warp[CHOOSERS / 32];
    unsigned t = blockIdx.x, n = pools_at(x, t), lane = threadIdx.x % 32, warp = threadIdx.x / 32, base = 0, open;
    uint32_t *list = x.list + t * x.ldl;
    const float *score = x.score + t * x.lds;
    unsigned long long least;

    if (!n) {
        if (threadIdx.x == 0)
            list[0] = INDEX_LIST_ALL;
        return;
    }
    least = smallest_chosen(score, n, x.most);
    for (unsigned i0 = 0; i0 < n; i0 += CHOOSERS) { /* in ascending order of pools */
        unsigned i = i0 + threadIdx.x, before = base;
        bool in = i < n && order_place(score[i], i) >= least;
        unsigned all = __ballot_sync(~0u, in);

        if (lane == 0)
            of_warp[warp] = __popc(all);
        __syncthreads();
        for (unsigned k = 0; k < CHOOSERS / 32; k++) {
            before += k < warp ? of_warp[k] : 0;
            base += of_warp[k];
        }
        before += __popc(all & ((1u << lane) - 1));
        for (unsigned j = 0; in && j < x.count; j++)
            list[1 + before * x.count + j] = i * x.count + j;
        __syncthreads();
    }
    open = (x.pos[t] + 1) % x.count;
    if (threadIdx.x < open)
        list[1 + x.most * x.count + threadIdx.x] = n * x.count + threadIdx.x;
    if (threadIdx.x == 0)
        list[0] = x.most * x.count + open;
}

void pools_runs_cuda(const struct pools_runs_cuda *p, cudaStream_t s)
{
    dim3 grid((p->d + THREADS - 1) / THREADS, p->n_tokens);

    if (p->d && p->n_tokens)
        pools_of_runs<<<grid, THREADS, 0, s>>>(*p);
}

void mean_runs_cuda(const struct mean_runs_cuda *p, cudaStream_t s)
{
    if (p->d && p->n_tokens)
        means_of_runs<<<p->n_tokens, THREADS, p->d * sizeof(float), s>>>(*p);
}

void index_lists_cuda(const struct index_lists_cuda *x, cudaStream_t s)
{
    struct index_lists_cuda some = *x;

    for (unsigned t = 0; t < x->n_tokens; t += INDEX_LIST_TOKENS) { /* scratch for a few tokens at a time */
        some.n_tokens = x->n_tokens - t < INDEX_LIST_TOKENS ? x->n_tokens - t : (unsigned)INDEX_LIST_TOKENS;
        score_lists<<<dim3(SCORE_BLOCKS, some.n_tokens), THREADS, 0, s>>>(some);
        choose_lists<<<some.n_tokens, CHOOSERS, 0, s>>>(some);
        some.q += (size_t)INDEX_LIST_TOKENS * x->n_heads * x->d;
        some.w += x->w ? INDEX_LIST_TOKENS * x->n_heads : 0;
        some.pos += INDEX_LIST_TOKENS;
        some.seq += INDEX_LIST_TOKENS;
        some.list += INDEX_LIST_TOKENS * x->ldl;
    }
}

void pools_cuda(const float *key, const float *gate, size_t ld, const float *bias,
                const uint32_t *first, unsigned count, size_t d, float *pk, unsigned n_pools,
                cudaStream_t s)
{
    dim3 grid((unsigned)((d + THREADS - 1) / THREADS), n_pools);

    if (d && n_pools)
        pools<<<grid, THREADS, 0, s>>>(key, gate, ld, bias, first, count, d, pk);
}

void index_scores_cuda(const float *q, const float *w, const float *pk, size_t stride,
                       const uint32_t *n_pools, unsigned n_heads, unsigned d, float scale,
                       float *score, size_t lds, unsigned n_tokens, cudaStream_t s)
{
    if (n_tokens)
        scores<<<dim3(SCORE_BLOCKS, n_tokens), THREADS, 0, s>>>(q, w, pk, stride, n_pools, n_heads,
                                                                d, scale, score, lds);
}
