/* Coefficients: a warp has a token, its lanes the numbers of C, or, with many streams, its rows, then its
 * columns, in turn; every sum is one lane's chain. The passes over the streams: a thread has one channel. */
#include "kernels/func/func.cuh"
#include "kernels/hyper/hyper_cuda.h"

enum { THREADS = 128 };

static __device__ __forceinline__ void row_softmax(float *row, unsigned n, float eps)
{
    float m = row[0], l = 0.0f;

    for (unsigned j = 1; j < n; j++)
        m = row[j] > m ? row[j] : m;
    for (unsigned j = 0; j < n; j++) {
        row[j] = cu_exp(__fsub_rn(row[j], m));
        l = __fadd_rn(l, row[j]);
    }
    for (unsigned j = 0; j < n; j++)
        row[j] = __fadd_rn(__fdiv_rn(row[j], l), eps);
}

static __device__ __forceinline__ void normalise(float *c, unsigned n, unsigned step, float eps)
{
    float sum = 0.0f;

    for (unsigned i = 0; i < n; i++)
        sum = __fadd_rn(sum, c[i * step]);
    sum = __fadd_rn(sum, eps);
    for (unsigned i = 0; i < n; i++)
        c[i * step] = cu_canon(__fdiv_rn(c[i * step], sum));
}

/* n * n <= 32: a lane has one number of C and asks the others for theirs; the sums run as row_softmax's and
 * normalise's. All lanes of the warp; those without a number make nothing that is read. */
static __device__ __forceinline__ float sum_along(float c, unsigned first, unsigned n, unsigned step)
{
    float sum = 0.0f;

    for (unsigned i = 0; i < n; i++)
        sum = __fadd_rn(sum, __shfl_sync(~0u, c, (first + i * step) % 32));
    return sum;
}

static __device__ __forceinline__ float sinkhorn_by_lanes(float c, unsigned n, float eps, int iterations)
{
    unsigned lane = threadIdx.x, row = lane / n * n, column = lane % n;
    float m = __shfl_sync(~0u, c, row % 32);

    for (unsigned j = 1; j < n; j++) {
        float v = __shfl_sync(~0u, c, (row + j) % 32);
        m = v > m ? v : m;
    }
    c = cu_exp(__fsub_rn(c, m));
    c = __fadd_rn(__fdiv_rn(c, sum_along(c, row, n, 1)), eps);
    for (int k = 0; k < iterations; k++) {
        if (k)
            c = cu_canon(__fdiv_rn(c, __fadd_rn(sum_along(c, row, n, 1), eps)));
        c = cu_canon(__fdiv_rn(c, __fadd_rn(sum_along(c, column, n, n), eps)));
    }
    return c;
}

static __global__ void mix(const float *m, const float *scale, const float *base, unsigned n,
                           float eps, int iterations, float *out)
{
    __shared__ float c[HYPER_STREAMS * HYPER_STREAMS];
    unsigned i = threadIdx.x;
    size_t width = 2 * n + n * n;
    float *pre = out + blockIdx.x * width, *post = pre + n, *C = post + n;

    m += blockIdx.x * width;
    if (i < n) {
        pre[i] = cu_canon(__fadd_rn(cu_sigmoid(__fmaf_rn(m[i], scale[0], base[i])), eps));
        post[i] =
            cu_canon(__fmul_rn(2.0f, cu_sigmoid(__fmaf_rn(m[n + i], scale[1], base[n + i]))));
    }
    if (n * n <= 32) {
        unsigned at = 2 * n + (i < n * n ? i : 0);
        float own = sinkhorn_by_lanes(__fmaf_rn(m[at], scale[2], base[at]), n, eps, iterations);
        if (i < n * n)
            C[i] = own;
        return;
    }
    if (i < n) {
        for (unsigned j = 0; j < n; j++)
            c[i * n + j] = __fmaf_rn(m[2 * n + i * n + j], scale[2], base[2 * n + i * n + j]);
        row_softmax(c + i * n, n, eps);
    }
    for (int k = 0; k < iterations; k++) {
        if (k && i < n)
            normalise(c + i * n, n, 1, eps);
        __syncwarp();
        if (i < n)
            normalise(c + i, n, n, eps);
        __syncwarp();
    }
    for (unsigned j = i; j < n * n; j += 32)
        C[j] = c[j];
}

static __global__ void collapse(const float *mixes, const float *X, unsigned n, size_t d, float *x)
{
    size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x, t = blockIdx.y;
    const float *pre = mixes + t * (2 * n + n * n);
    float acc = 0.0f;

    if (i >= d)
        return;
    for (unsigned s = 0; s < n; s++)
        acc = __fmaf_rn(pre[s], X[(t * n + s) * d + i], acc);
    x[t * d + i] = cu_canon(acc);
}

static __global__ void expand(const float *mixes, const float *y, float *X, unsigned n, size_t d)
{
    size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x, t = blockIdx.y;
    const float *post = mixes + t * (2 * n + n * n) + n, *C = post + n;
    float before[HYPER_STREAMS];

    if (i >= d)
        return;
#pragma unroll
    for (unsigned u = 0; u < HYPER_STREAMS; u++)
        before[u] = u < n ? X[(t * n + u) * d + i] : 0.0f;
    for (unsigned j = 0; j < n; j++) {
        float acc = __fmul_rn(post[j], y[t * d + i]);
#pragma unroll
        for (unsigned u = 0; u < HYPER_STREAMS; u++)
            if (u < n)
                acc = __fmaf_rn(C[u * n + j], before[u], acc);
        X[(t * n + j) * d + i] = cu_canon(acc);
    }
}

static __global__ void mean(const float *X, unsigned n, size_t d, float *x)
{
    size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x, t = blockIdx.y;
    float acc = 0.0f;

    if (i >= d)
        return;
    for (unsigned s = 0; s < n; s++)
        acc = __fadd_rn(acc, X[(t * n + s) * d + i]);
    x[t * d + i] = cu_canon(__fdiv_rn(acc, (float)n));
}

static dim3 grid_of(size_t d, unsigned n_tokens)
{
    return dim3((unsigned)((d + THREADS - 1) / THREADS), n_tokens);
}

void hyper_mix_cuda(const float *m, const float *scale, const float *base, unsigned n, float eps,
                    int iterations, float *mixes, unsigned n_tokens, cudaStream_t s)
{
    if (n_tokens)
        mix<<<n_tokens, 32, 0, s>>>(m, scale, base, n, eps, iterations, mixes);
}

void hyper_collapse_cuda(const float *mixes, const float *X, unsigned n, size_t d, float *x,
                         unsigned n_tokens, cudaStream_t s)
{
    if (d && n_tokens)
        collapse<<<grid_of(d, n_tokens), THREADS, 0, s>>>(mixes, X, n, d, x);
}

void hyper_expand_cuda(const float *mixes, const float *y, float *X, unsigned n, size_t d,
                       unsigned n_tokens, cudaStream_t s)
{
    if (d && n_tokens)
        expand<<<grid_of(d, n_tokens), THREADS, 0, s>>>(mixes, y, X, n, d);
}

void hyper_mean_cuda(const float *X, unsigned n, size_t d, float *x, unsigned n_tokens,
                     cudaStream_t s)
{
    if (d && n_tokens)
        mean<<<grid_of(d, n_tokens), THREADS, 0, s>>>(X, n, d, x);
}
