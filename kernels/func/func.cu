/* A thread computes one value; nothing is summed. */
#include "kernels/func/func.cuh"
#include "kernels/func/func_cuda.h"

enum { THREADS = 256, MOST_BLOCKS = 4096 };

static unsigned blocks(size_t n)
{
    size_t b = (n + THREADS - 1) / THREADS;

    return b < MOST_BLOCKS ? (unsigned)b : (unsigned)MOST_BLOCKS;
}

template <float F(float)> static __global__ void vec(const float *x, float *y, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < n;
         i += gridDim.x * (size_t)THREADS)
        y[i] = cu_canon(F(x[i]));
}

static __global__ void swiglu(const float *g, const float *u, float limit, float *h, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < n;
         i += gridDim.x * (size_t)THREADS)
        h[i] = cu_swiglu(g[i], u[i], limit);
}

static __global__ void scale(float *x, float f, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < n;
         i += gridDim.x * (size_t)THREADS)
        x[i] = cu_canon(__fmul_rn(x[i], f));
}

static __global__ void divide(float *x, float f, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < n;
         i += gridDim.x * (size_t)THREADS)
        x[i] = cu_canon(__fdiv_rn(x[i], f));
}

static __global__ void decay(const float *x, const float *A, const float *dt, unsigned heads, unsigned each,
                             int bounded, float bound, float *y, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < n;
         i += gridDim.x * (size_t)THREADS) {
        unsigned at = (unsigned)(i % ((size_t)heads * each));
        float a = A[at / each], t = __fadd_rn(x[i], dt[at]);
        y[i] = cu_canon(bounded ? __fmul_rn(bound, cu_sigmoid(__fmul_rn(-a, t))) : __fmul_rn(a, cu_softplus(t)));
    }
}

void vec_scale_cuda(float *x, float f, size_t n, cudaStream_t s)
{
    if (n)
        scale<<<blocks(n), THREADS, 0, s>>>(x, f, n);
}
void vec_divide_cuda(float *x, float f, size_t n, cudaStream_t s)
{
    if (n)
        divide<<<blocks(n), THREADS, 0, s>>>(x, f, n);
}
void decay_cuda(const float *x, const float *A, const float *dt, unsigned heads, unsigned each, int bounded,
                float bound, float *y, size_t rows, cudaStream_t s)
{
    size_t n = rows * heads * each;

    if (n)
        decay<<<blocks(n), THREADS, 0, s>>>(x, A, dt, heads, each, bounded, bound, y, n);
}

void vec_exp_cuda(const float *x, float *y, size_t n, cudaStream_t s)
{
    if (n)
        vec<cu_exp><<<blocks(n), THREADS, 0, s>>>(x, y, n);
}
void vec_softplus_cuda(const float *x, float *y, size_t n, cudaStream_t s)
{
    if (n)
        vec<cu_softplus><<<blocks(n), THREADS, 0, s>>>(x, y, n);
}
void vec_sigmoid_cuda(const float *x, float *y, size_t n, cudaStream_t s)
{
    if (n)
        vec<cu_sigmoid><<<blocks(n), THREADS, 0, s>>>(x, y, n);
}
void vec_silu_cuda(const float *x, float *y, size_t n, cudaStream_t s)
{
    if (n)
        vec<cu_silu><<<blocks(n), THREADS, 0, s>>>(x, y, n);
}
void vec_tanh_cuda(const float *x, float *y, size_t n, cudaStream_t s)
{
    if (n)
        vec<cu_tanh><<<blocks(n), THREADS, 0, s>>>(x, y, n);
}
void clamp_swiglu_cuda(const float *g, const float *u, float limit, float *h, size_t n,
                       cudaStream_t s)
{
    if (n)
        swiglu<<<blocks(n), THREADS, 0, s>>>(g, u, limit, h, n);
}
