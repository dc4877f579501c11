/* Routers: a warp has one token; lane l has the experts l, l + 32, ..., which are SUM32's terms of
 * lane l. The first k are found one after the other, each the largest 64-bit key that is left: the
 * order of rule 26 above, the index (lower first) below. */
#include <cuda_runtime.h>

#include "kernels/func/func.cuh"
#include "kernels/sum/sum.cuh"
#include "kernels/topk/order.cuh"
#include "kernels/topk/topk_cuda.h"

enum { THREADS = 256, AHEAD = 8 /* loads of a thread on their way */ };

static __device__ __forceinline__ unsigned long long warp_most(unsigned long long key)
{
    for (int h = 16; h; h /= 2) {
        unsigned long long o = __shfl_xor_sync(WARP_ALL, key, h);
        key = o > key ? o : key;
    }
    return key;
}

/* the weights of rule 26 from the k scores in w, by lane 0 */
static __device__ void weights(float *w, const router_cuda &r)
{
    float t = 0.0f;

    if (r.normalise) {
        for (unsigned p = 0; p < r.k; p++)
            t = __fadd_rn(t, w[p]);
        t = t > r.floor ? t : r.floor;
        if (r.plus != 0.0f)
            t = __fadd_rn(t, r.plus);
    }
    for (unsigned p = 0; p < r.k; p++) {
        float v = r.normalise ? __fdiv_rn(w[p], t) : w[p];
        if (r.scale != 0.0f && r.scale != 1.0f)
            v = __fmul_rn(v, r.scale);
        w[p] = cu_canon(v);
    }
}

/* The token's logits to shared memory: a lane's own values alone, which it alone reads again. */
static __device__ __forceinline__ void stage(const float *x, unsigned n, float *copy)
{
    for (unsigned base = threadIdx.x; base < n; base += AHEAD * WARP) {
        float v[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            v[k] = base + k * WARP < n ? x[base + k * WARP] : 0.0f;
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (base + k * WARP < n)
                copy[base + k * WARP] = v[k];
    }
}

/* rule 25 over the token's logits, into scores and the warp's shared copy */
static __device__ __forceinline__ void softmax_scores(const router_cuda &r, const float *x,
                                                      float *scores, float *copy)
{
    unsigned lane = threadIdx.x;
    float m = __int_as_float(0xFF800000), l = 0.0f;

    stage(x, r.n, copy);
    for (unsigned i = lane; i < r.n; i += WARP)
        m = copy[i] > m ? copy[i] : m;
    m = cu_warp_max(m);
    for (unsigned i = lane; i < r.n; i += WARP) {
        copy[i] = cu_exp(__fsub_rn(copy[i], m));
        l = __fadd_rn(l, copy[i]);
    }
    l = cu_fold32(l);
    for (unsigned i = lane; i < r.n; i += WARP)
        scores[i] = copy[i] = cu_canon(__fdiv_rn(copy[i], l));
}

/* copy holds what is chosen by */
static __device__ __forceinline__ void sigmoid_scores(const router_cuda &r, const float *x,
                                                      float *scores, float *copy)
{
    stage(x, r.n, copy);
    for (unsigned i = threadIdx.x; i < r.n; i += WARP) {
        float v = cu_canon(cu_sigmoid(copy[i]));
        scores[i] = v;
        copy[i] = r.bias ? cu_canon(__fadd_rn(v, r.bias[i])) : v;
    }
}

template <bool SIGMOID> static __global__ void __launch_bounds__(WARP) route(router_cuda r)
{
    __shared__ float copy[ROUTER_CUDA_EXPERTS];
    unsigned lane = threadIdx.x;
    size_t t = blockIdx.x;
    const float *x = r.logits + t * r.n;
    float *scores = r.scores + t * r.n, *w = r.w + t * r.k;
    unsigned long long below = ~0ull, most;

    if (SIGMOID)
        sigmoid_scores(r, x, scores, copy);
    else
        softmax_scores(r, x, scores, copy);
    __syncwarp();
    for (unsigned p = 0; p < r.k; p++) {
        most = 0;
        for (unsigned i = lane; i < r.n; i += WARP) {
            unsigned long long key = order_place(copy[i], i);
            most = key < below && key > most ? key : most;
        }
        below = warp_most(most);
        if (lane == 0) {
            uint32_t i = ~(uint32_t)below;
            r.idx[t * r.k + p] = i;
            w[p] = copy[i];
        }
    }
    __syncwarp();
    if (SIGMOID) /* the scores without bias, written by other lanes before */
        for (unsigned p = lane; p < r.k; p += WARP)
            w[p] = scores[r.idx[t * r.k + p]];
    __syncwarp();
    if (lane == 0)
        weights(w, r);
}

void router_softmax_cuda(const struct router_cuda *r, cudaStream_t s)
{
    if (r->n_tokens)
        route<false><<<r->n_tokens, WARP, 0, s>>>(*r);
}

void router_sigmoid_cuda(const struct router_cuda *r, cudaStream_t s)
{
    if (r->n_tokens)
        route<true><<<r->n_tokens, WARP, 0, s>>>(*r);
}

/* ---- arg-max: every block its part of a row, the last one to arrive looks at all parts ---- */

struct argmax_scratch {
    unsigned long long best[ARGMAX_CUDA_BLOCKS];
    unsigned long long arrived;
};

size_t argmax_cuda_scratch(void)
{
    return sizeof(argmax_scratch);
}

static __device__ __forceinline__ unsigned long long block_most(unsigned long long key)
{
    __shared__ unsigned long long of_warp[THREADS / WARP];

    key = warp_most(key);
    if (threadIdx.x % WARP == 0)
        of_warp[threadIdx.x / WARP] = key;
    __syncthreads();
    key = threadIdx.x < THREADS / WARP ? of_warp[threadIdx.x] : 0;
    if (threadIdx.x < WARP)
        key = warp_most(key);
    return key; /* thread 0's is right */
}

static __global__ void argmax(const float *x, size_t ldx, size_t n, uint32_t *best,
                              argmax_scratch *all)
{
    argmax_scratch *a = all + blockIdx.y;
    const float *row = x + blockIdx.y * ldx;
    size_t step = (size_t)gridDim.x * THREADS;
    unsigned long long most = 0;

    for (size_t base = blockIdx.x * (size_t)THREADS + threadIdx.x; base < n; base += AHEAD * step) {
        float v[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            v[k] = base + k * step < n ? row[base + k * step] : __int_as_float(0xFF800000);
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (v[k] == v[k] && v[k] != __int_as_float(0xFF800000)) {
                unsigned long long key = order_place(v[k], (uint32_t)(base + k * step));
                most = key > most ? key : most;
            }
    }
    most = block_most(most);
    if (threadIdx.x)
        return;
    a->best[blockIdx.x] = most;
    __threadfence();
    if (atomicAdd(&a->arrived, 1) + 1 < gridDim.x)
        return;
    __threadfence();
    for (unsigned i = 0; i < gridDim.x; i++) {
        unsigned long long key = ((volatile unsigned long long *)a->best)[i];
        most = key > most ? key : most;
        a->best[i] = 0;
    }
    a->arrived = 0;
    best[blockIdx.y] = most ? ~(uint32_t)most : ARGMAX_NONE;
}

void argmax_cuda(const float *x, size_t ldx, size_t n, unsigned n_rows, uint32_t *best,
                 void *scratch, cudaStream_t s)
{
    size_t blocks = (n + 4 * THREADS - 1) / (4 * THREADS);

    if (!n || !n_rows)
        return;
    if (blocks > ARGMAX_CUDA_BLOCKS)
        blocks = ARGMAX_CUDA_BLOCKS;
    argmax<<<dim3((unsigned)blocks, n_rows), THREADS, 0, s>>>(x, ldx, n, best,
                                                              (argmax_scratch *)scratch);
}
