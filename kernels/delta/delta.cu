/* Four threads have one column of a head's state: thread l its keys l, l + 4, ..., which is LANE4's
 * lane l, and the lanes fold by two exchanges (additions commute, so all four hold the sum). The
 * part stays in registers from token to token where it fits. */
#include "kernels/delta/delta_cuda.h"
#include "kernels/num.cuh"

enum {
    LANES = 4,
    COLUMNS = 32, /* of a block */
    THREADS = LANES * COLUMNS,
    HELD = 64, /* most keys of a thread that stay in registers: n_k up to 256 */
};

static __device__ __forceinline__ float fold4(float lane)
{
    lane = __fadd_rn(lane, __shfl_xor_sync(~0u, lane, 2));
    return __fadd_rn(lane, __shfl_xor_sync(~0u, lane, 1));
}

/* The arrays of one token of one head. */
struct at {
    const float *a, *q, *key;
    float value, beta;
};
static __device__ __forceinline__ at token_at(const delta_cuda &d, unsigned t, unsigned h,
                                              unsigned v)
{
    size_t head = (size_t)t * d.heads + h;

    return {d.a + head * (d.a_one ? 1 : d.n_k), d.q + head * d.n_k, d.key + head * d.n_k,
            v < d.n_v ? d.value[head * d.n_v + v] : 0.0f, d.beta[head]};
}

/* HOLD: this thread's part is in registers; else it goes through `to`. */
template <int HOLD> static __global__ void __launch_bounds__(THREADS) rule(delta_cuda d)
{
    unsigned lane = threadIdx.x % LANES, v = blockIdx.x * COLUMNS + threadIdx.x / LANES,
             h = blockIdx.y;
    size_t base = ((size_t)blockIdx.z * d.heads + h) * d.n_k * d.n_v + v;
    const float *from = d.from + base;
    float *to = d.to + base, s[HOLD ? HOLD : 1];
    bool in = v < d.n_v, first = true;

    for (unsigned t = 0; t < d.n_tokens; t++) {
        float u = 0.0f, o = 0.0f, x;
        at w;

        if (d.seq[t] != blockIdx.z)
            continue;
        w = token_at(d, t, h, v);
#pragma unroll
        for (unsigned i = 0; i < (HOLD ? HOLD : 1); i++) {
            unsigned k0 = HOLD ? i * LANES + lane : lane;
            for (unsigned k = k0; k < (HOLD ? (k0 < d.n_k ? k0 + 1 : k0) : d.n_k); k += LANES) {
                float old = !in     ? 0.0f
                            : first ? from[(size_t)k * d.n_v]
                            : HOLD  ? s[i]
                                    : to[(size_t)k * d.n_v];
                float now = __fmul_rn(old, w.a[d.a_one ? 0 : k]);
                if (HOLD)
                    s[i] = now;
                else if (in)
                    to[(size_t)k * d.n_v] = now;
                u = __fmaf_rn(now, w.key[k], u);
            }
        }
        x = __fmul_rn(__fsub_rn(w.value, fold4(u)), w.beta);
#pragma unroll
        for (unsigned i = 0; i < (HOLD ? HOLD : 1); i++) {
            unsigned k0 = HOLD ? i * LANES + lane : lane;
            for (unsigned k = k0; k < (HOLD ? (k0 < d.n_k ? k0 + 1 : k0) : d.n_k); k += LANES) {
                float now = __fmaf_rn(w.key[k], x, HOLD ? s[i] : in ? to[(size_t)k * d.n_v] : 0.0f);
                if (HOLD)
                    s[i] = now;
                else if (in)
                    to[(size_t)k * d.n_v] = cu_canon(now);
                o = __fmaf_rn(now, w.q[k], o);
            }
        }
        o = fold4(o);
        if (in && lane == 0)
            d.o[((size_t)t * d.heads + h) * d.n_v + v] = cu_canon(o);
        first = false;
    }
    if (HOLD && in && !first)
#pragma unroll
        for (unsigned i = 0; i < (HOLD ? HOLD : 1); i++)
            if (i * LANES + lane < d.n_k)
                to[(size_t)(i * LANES + lane) * d.n_v] = cu_canon(s[i]);
}

void delta_rule_cuda(const struct delta_cuda *d, cudaStream_t s)
{
    dim3 grid((d->n_v + COLUMNS - 1) / COLUMNS, d->heads, d->n_slots);

    if (!d->n_tokens || !d->n_v || !d->heads || !d->n_slots)
        return;
    if (d->n_k <= LANES * HELD / 2)
        rule<HELD / 2><<<grid, THREADS, 0, s>>>(*d);
    else if (d->n_k <= LANES * HELD)
        rule<HELD><<<grid, THREADS, 0, s>>>(*d);
    else
        rule<0><<<grid, THREADS, 0, s>>>(*d);
}

/* ---- versions ---- */

/* One token of one head, this thread's keys in registers. o: this thread's share of the column's output. */
template <int HOLD>
static __device__ __forceinline__ float one_token(float s[HOLD], const at &w, unsigned n_k, bool a_one,
                                                  unsigned lane)
{
    float u = 0.0f, o = 0.0f, x;

#pragma unroll
    for (unsigned i = 0; i < HOLD; i++) {
        unsigned k = i * LANES + lane;
        if (k < n_k) {
            s[i] = __fmul_rn(s[i], w.a[a_one ? 0 : k]);
            u = __fmaf_rn(s[i], w.key[k], u);
        }
    }
    x = __fmul_rn(__fsub_rn(w.value, fold4(u)), w.beta);
#pragma unroll
    for (unsigned i = 0; i < HOLD; i++) {
        unsigned k = i * LANES + lane;
        if (k < n_k) {
            s[i] = __fmaf_rn(w.key[k], x, s[i]);
            o = __fmaf_rn(s[i], w.q[k], o);
        }
    }
    return fold4(o);
}

template <int HOLD>
static __device__ __forceinline__ void store_part(float *to, const float s[HOLD], unsigned n_k, unsigned n_v,
                                                  unsigned lane)
{
#pragma unroll
    for (unsigned i = 0; i < HOLD; i++)
        if (i * LANES + lane < n_k)
            to[(size_t)(i * LANES + lane) * n_v] = cu_canon(s[i]);
}

/* What the block's columns keep of a token; the first column block keys, a and beta too. */
static __device__ __forceinline__ void keep(float *rec, const struct delta_runs_cuda &d, const at &w, unsigned v,
                                            unsigned lane)
{
    unsigned n_a = d.a_one ? 1 : d.n_k;

    if (v < d.n_v && lane == 0)
        rec[d.n_k + v] = w.value;
    if (blockIdx.x)
        return;
    for (unsigned k = threadIdx.x; k < d.n_k; k += THREADS)
        rec[k] = w.key[k];
    for (unsigned k = threadIdx.x; k < n_a; k += THREADS)
        rec[d.n_k + d.n_v + k] = w.a[k];
    if (threadIdx.x == 0)
        rec[d.n_k + d.n_v + n_a] = w.beta;
}

/* Grid: columns, heads, runs. */
template <int HOLD> static __global__ void __launch_bounds__(THREADS) runs(struct delta_runs_cuda d)
{
    unsigned lane = threadIdx.x % LANES, v = blockIdx.x * COLUMNS + threadIdx.x / LANES, h = blockIdx.y;
    unsigned n_a = d.a_one ? 1 : d.n_k, kh = h % d.k_heads;
    size_t matrix = (size_t)d.n_k * d.n_v, version = d.heads * matrix;
    size_t rec = d.n_k + d.n_v + n_a + 1, kept = d.most_kept * d.heads * rec;
    bool in = v < d.n_v;
    float *base, *from, *to, *keeps, s[HOLD];
    const float *was;
    run r;

    if (blockIdx.z >= *d.n_runs)
        return;
    r = d.run[blockIdx.z];
    base = d.state + r.seq * d.seq_floats;
    from = base + r.from * version + h * matrix + v;
    to = base + (r.from ^ 1) * version + h * matrix + v;
    was = base + 2 * version + r.from * kept + h * rec;
    keeps = base + 2 * version + (r.from ^ 1) * kept + h * rec;
#pragma unroll
    for (unsigned i = 0; i < HOLD; i++)
        s[i] = !in || r.zero || i * LANES + lane >= d.n_k ? 0.0f
               : (r.redo ? to : from)[(size_t)(i * LANES + lane) * d.n_v];
    for (unsigned t = 0; t < r.redo; t++) {
        const float *k = was + t * d.heads * rec;
        at w = {k + d.n_k + d.n_v, k, k, in ? k[d.n_k + v] : 0.0f, k[d.n_k + d.n_v + n_a]};
        one_token<HOLD>(s, w, d.n_k, d.a_one, lane);
    }
    if (in && (r.redo || r.zero)) /* what this step begins with: it may be played again */
        store_part<HOLD>(from, s, d.n_k, d.n_v, lane);
    for (unsigned t = r.first; t < r.first + r.n; t++) {
        size_t head = (size_t)t * d.heads + h, k_head = (size_t)t * d.k_heads + kh;
        at w = {d.a + head * n_a, d.q + k_head * d.n_k, d.key + k_head * d.n_k,
                in ? d.value[head * d.n_v + v] : 0.0f, d.beta[head]};
        float o = one_token<HOLD>(s, w, d.n_k, d.a_one, lane);

        if (in && lane == 0)
            d.o[head * d.n_v + v] = cu_canon(o);
        if (r.n <= d.most_kept)
            keep(keeps + (t - r.first) * d.heads * rec, d, w, v, lane);
    }
    if (in)
        store_part<HOLD>(to, s, d.n_k, d.n_v, lane);
}

void delta_runs_cuda(const struct delta_runs_cuda *d, cudaStream_t s)
{
    dim3 grid((d->n_v + COLUMNS - 1) / COLUMNS, d->heads, d->most_runs);

    if (!d->n_v || !d->heads || !d->most_runs)
        return;
    if (d->n_k <= LANES * HELD / 2)
        runs<HELD / 2><<<grid, THREADS, 0, s>>>(*d);
    else
        runs<HELD><<<grid, THREADS, 0, s>>>(*d);
}
