/* A thread makes one value of a token: its chain runs over the places in their order, whoever made
 * the rows. */
#include "kernels/moe/moe_cuda.h"
#include "kernels/moe/sum.cuh"

enum { THREADS = 256, MOST_BLOCKS = 4096, AHEAD = 8 /* rows of a thread on their way */ };

static __global__ void sum_near(const float *w, const float *rows, unsigned k, float *acc,
                                size_t ld, size_t n)
{
    size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x, t = blockIdx.y;
    float a = 0.0f;

    if (i >= n)
        return;
    for (unsigned p0 = 0; p0 < k; p0 += AHEAD) {
        float y[AHEAD], f[AHEAD];

#pragma unroll
        for (unsigned p = 0; p < AHEAD; p++) { /* a place that is none reads another's row */
            unsigned at = t * k + (p0 + p < k ? p0 + p : p0);
            y[p] = rows[(size_t)at * n + i];
            f[p] = w[at];
        }
#pragma unroll
        for (unsigned p = 0; p < AHEAD; p++)
            a = p0 + p < k ? __fmaf_rn(f[p], y[p], a) : a;
    }
    acc[t * ld + i] = cu_canon(a);
}

/* V: what a thread makes, one value or four neighbours; n counts V */
template <class V>
static __global__ void sum_far(const float *w, const float *const *row_at, unsigned k, float *acc,
                               size_t ld, size_t n)
{
    size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x, t = blockIdx.y;
    V a = {};

    if (i >= n)
        return;
    for (unsigned p0 = 0; p0 < k; p0 += AHEAD) {
        const V *at[AHEAD];
        V y[AHEAD];

#pragma unroll
        for (unsigned p = 0; p < AHEAD; p++)
            at[p] = (const V *)row_at[t * k + (p0 + p < k ? p0 + p : p0)];
#pragma unroll
        for (unsigned p = 0; p < AHEAD; p++)
            y[p] = load_far(at[p] + i);
#pragma unroll
        for (unsigned p = 0; p < AHEAD; p++)
            if (p0 + p < k)
                add_row(a, w[t * k + p0 + p], y[p]);
    }
    store_sum(acc + t * ld + i * (sizeof(V) / sizeof(float)), a);
}

enum pair_op { PAIR_ADD, PAIR_MUL };
template <pair_op OP> static __global__ void pairs(float *x, const float *y, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < n;
         i += gridDim.x * (size_t)THREADS)
        x[i] = cu_canon(OP == PAIR_ADD ? __fadd_rn(x[i], y[i]) : __fmul_rn(x[i], y[i]));
}

static __global__ void fma1(const float *a, const float *y, float *x, size_t n)
{
    size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x, at = blockIdx.y * n + i;

    if (i < n)
        x[at] = cu_canon(__fmaf_rn(a[blockIdx.y], y[at], x[at]));
}

static __global__ void fma1_each(const float *a, const float *y, float *x, size_t n, unsigned each)
{
    size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x, at = blockIdx.y * n + i;

    if (i < n)
        x[at] = cu_canon(__fmaf_rn(a[blockIdx.y], y[blockIdx.y / each * n + i], x[at]));
}

static unsigned blocks(size_t n)
{
    size_t b = (n + THREADS - 1) / THREADS;

    return b < MOST_BLOCKS ? (unsigned)b : (unsigned)MOST_BLOCKS;
}

/* a block for each 256 values of a row */
static dim3 grid_of(size_t n, unsigned rows)
{
    return dim3((unsigned)((n + THREADS - 1) / THREADS), rows);
}

void moe_sum_cuda(const float *w, const float *rows, unsigned k, float *acc, size_t ld, size_t n,
                  unsigned n_tokens, cudaStream_t s)
{
    if (n && n_tokens)
        sum_near<<<grid_of(n, n_tokens), THREADS, 0, s>>>(w, rows, k, acc, ld, n);
}

void moe_sum_far_cuda(const float *w, const float *const *row_at, unsigned k, float *acc, size_t ld,
                      size_t n, unsigned n_tokens, cudaStream_t s)
{
    if (!n || !n_tokens)
        return;
    if (n % 4)
        sum_far<float><<<grid_of(n, n_tokens), THREADS, 0, s>>>(w, row_at, k, acc, ld, n);
    else
        sum_far<float4><<<grid_of(n / 4, n_tokens), THREADS, 0, s>>>(w, row_at, k, acc, ld, n / 4);
}

void vec_add_cuda(float *x, const float *y, size_t n, cudaStream_t s)
{
    if (n)
        pairs<PAIR_ADD><<<blocks(n), THREADS, 0, s>>>(x, y, n);
}

void vec_mul_cuda(float *x, const float *y, size_t n, cudaStream_t s)
{
    if (n)
        pairs<PAIR_MUL><<<blocks(n), THREADS, 0, s>>>(x, y, n);
}

void vec_fma1_cuda(const float *a, const float *y, float *x, size_t n, unsigned rows,
                   cudaStream_t s)
{
    if (n && rows)
        fma1<<<grid_of(n, rows), THREADS, 0, s>>>(a, y, x, n);
}

void vec_fma1_each_cuda(const float *a, const float *y, float *x, size_t n, unsigned each, unsigned rows,
                        cudaStream_t s)
{
    if (n && rows && each)
        fma1_each<<<grid_of(n, rows * each), THREADS, 0, s>>>(a, y, x, n, each);
}
