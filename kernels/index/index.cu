/* Pooled keys: a thread has one channel. Scores: eight threads have a pool, thread l the elements
 * l, l + 8, ... of its key, which is LANE8's lane l; three exchanges fold (additions commute). */
#include "kernels/func/func.cuh"
#include "kernels/index/index_cuda.h"

enum { THREADS = 256, LANES = 8, SCORE_BLOCKS = 128 };

static __global__ void pools(const float *key, const float *gate, size_t ld, const float *bias,
                             const uint32_t *first, unsigned count, size_t d, float *pk)
{
    size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x, row0 = first[blockIdx.y];
    float acc = 0.0f, m = 0.0f, lane[32];

    if (i >= d)
        return;
    if (!gate) {
        for (unsigned s = 0; s < count; s++)
            acc = __fadd_rn(acc, key[(row0 + s) * ld + i]);
        pk[blockIdx.y * d + i] = cu_canon(__fdiv_rn(acc, (float)count));
        return;
    }
#define MEMBER(s)                                                                                  \
    (bias ? __fadd_rn(gate[(row0 + (s)) * ld + i], bias[(s)*d + i]) : gate[(row0 + (s)) * ld + i])
    for (unsigned s = 0; s < count; s++) {
        float a = MEMBER(s);
        m = s == 0 || a > m ? a : m;
    }
    for (int l = 0; l < 32; l++) /* rule 25's sum: SUM32 over the members */
        lane[l] = 0.0f;
    for (unsigned s0 = 0; s0 < count; s0 += 32)
#pragma unroll
        for (unsigned l = 0; l < 32; l++)
            if (s0 + l < count)
                lane[l] = __fadd_rn(lane[l], cu_exp(__fsub_rn(MEMBER(s0 + l), m)));
#pragma unroll
    for (int h = 16; h; h /= 2)
#pragma unroll
        for (int j = 0; j < h; j++)
            lane[j] = __fadd_rn(lane[j], lane[j + h]);
    for (unsigned s = 0; s < count; s++) {
        float p = __fdiv_rn(cu_exp(__fsub_rn(MEMBER(s), m)), lane[0]);
        acc = __fmaf_rn(p, key[(row0 + s) * ld + i], acc);
    }
    pk[blockIdx.y * d + i] = cu_canon(acc);
#undef MEMBER
}

static __global__ void scores(const float *q, const float *w, const float *pk, size_t stride,
                              const uint32_t *n_pools, unsigned n_heads, unsigned d, float scale,
                              float *score, size_t lds)
{
    unsigned l = threadIdx.x % LANES, per = THREADS / LANES, t = blockIdx.y, n = n_pools[t];

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
