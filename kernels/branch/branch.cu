/* The mean: a thread an element. The gate: a block a stream of a token, whose first warp is SUM32. */
#include "kernels/branch/branch_cuda.h"
#include "kernels/func/func.cuh"
#include "kernels/sum/sum.cuh"

enum { THREADS = 256 };

static __global__ void mean(const float *g, const float *x, unsigned n, size_t d, float *m)
{
    size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x, t = blockIdx.y;
    float acc = 0.0f;

    if (i >= d)
        return;
    for (unsigned s = 0; s < n; s++)
        acc = __fmaf_rn(g[(t * n + s) * d + i], x[(t * n + s) * d + i], acc);
    m[t * d + i] = cu_canon(__fdiv_rn(acc, (float)n));
}

static __device__ float gate_of(float product, float scale)
{
    float a = __fmul_rn(__fadd_rn(product, 0.0f), scale), size = fabsf(a);
    float z = a == 0.0f ? 0.0f : copysignf(__fsqrt_rn(size < 1e-6f ? 1e-6f : size), a);

    return cu_canon(cu_sigmoid(z));
}

static __global__ void gate(const float *k, const float *q, const float *v, float scale, unsigned n, size_t d, float *u)
{
    __shared__ float shared;
    size_t t = blockIdx.y, at = (t * n + blockIdx.x) * d;

    if (threadIdx.x < WARP) {
        float acc = 0.0f;
#pragma unroll 8
        for (size_t i = threadIdx.x; i < d; i += WARP)
            acc = __fmaf_rn(k[at + i], q[at + i], acc);
        acc = cu_fold32(acc);
        if (threadIdx.x == 0)
            shared = gate_of(acc, scale);
    }
    __syncthreads();
    for (size_t i = threadIdx.x; i < d; i += THREADS)
        u[at + i] = cu_canon(__fmul_rn(shared, v[t * d + i]));
}

void branch_mean_cuda(const float *g, const float *x, unsigned n, size_t d, float *m, unsigned n_tokens, cudaStream_t s)
{
    if (d && n_tokens)
        mean<<<dim3((unsigned)((d + THREADS - 1) / THREADS), n_tokens), THREADS, 0, s>>>(g, x, n, d, m);
}

void branch_gate_cuda(const float *k, const float *q, const float *v, float scale, unsigned n, size_t d, float *u,
                      unsigned n_tokens, cudaStream_t s)
{
    if (d && n && n_tokens)
        gate<<<dim3(n, n_tokens), THREADS, 0, s>>>(k, q, v, scale, n, d, u);
}
