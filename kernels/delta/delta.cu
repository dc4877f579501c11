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
