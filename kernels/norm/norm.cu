/* Short vectors: a warp has one, its lanes are SUM32's. Long ones: a block has one; all its threads
 * load it and write the result, its first warp makes the sum, so that the order is the same. */
#include "kernels/norm/norm_cuda.h"
#include "kernels/sum/sum.cuh"

enum norm_kind { NORM_RMS, NORM_GATED, NORM_L2, NORM_LAYER };
enum {
    SHORT = 512,   /* values, up to which a warp works alone */
    THREADS = 256, /* of a block for a long vector */
    WARPS = 4,     /* vectors of a block of short ones */
    STAGED = 8192, /* values that a block keeps in shared memory */
};

struct norm_args {
    struct norm_rows r;
    const float *w, *b; /* b: LayerNorm's bias, or what a gated norm multiplies with */
    float eps;
};

static __device__ __forceinline__ float one_over_root(float ss, size_t n, float eps, norm_kind kind)
{
    float mean = kind == NORM_L2 ? ss : __fdiv_rn(ss, (float)n);

    return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, eps)));
}

template <norm_kind K>
static __device__ __forceinline__ float value(const norm_args &a, float x, float m, float s,
                                              size_t i, const float *act)
{
    if (K == NORM_LAYER)
        return cu_canon(__fmaf_rn(__fmul_rn(__fsub_rn(x, m), s), a.w[i], a.b[i]));
    x = __fmul_rn(x, s);
    if (K == NORM_GATED)
        return cu_canon(__fmul_rn(__fmul_rn(x, a.w[i]), act[i]));
    return cu_canon(K == NORM_RMS && a.w ? __fmul_rn(x, a.w[i]) : x);
}

/* LayerNorm's sum of squares around the mean, one warp */
static __device__ __forceinline__ float around(const float *x, size_t n, float m)
{
    float acc = 0.0f;

    for (size_t i = threadIdx.x % WARP; i < n; i += WARP) {
        float c = __fsub_rn(x[i], m);
        acc = __fmaf_rn(c, c, acc);
    }
    return cu_fold32(acc);
}

/* the mean (LayerNorm; else 0) and the factor of one vector, by one warp */
template <norm_kind K>
static __device__ __forceinline__ void factors(const float *x, size_t n, float eps, float *m,
                                               float *s)
{
    float ss;

    *m = 0.0f;
    if (K == NORM_LAYER) {
        *m = __fdiv_rn(cu_sum32(x, n), (float)n);
        ss = around(x, n, *m);
    } else {
        ss = cu_squares32(x, n);
    }
    *s = one_over_root(ss, n, eps, K);
}

template <norm_kind K> static __global__ void by_warp(norm_args a)
{
    unsigned piece = blockIdx.x * WARPS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    size_t at = (size_t)blockIdx.y * a.r.ldx + piece * a.r.n;
    const float *x = a.r.x + at;
    float *y = a.r.y + (size_t)blockIdx.y * a.r.ldy + piece * a.r.n, m, s;

    if (piece >= a.r.pieces)
        return;
    factors<K>(x, a.r.n, a.eps, &m, &s);
    for (size_t i = lane; i < a.r.n; i += WARP)
        y[i] = value<K>(a, x[i], m, s, i, K == NORM_GATED ? a.b + at : NULL);
}

template <norm_kind K> static __global__ void by_block(norm_args a, int staged)
{
    extern __shared__ float stage[];
    __shared__ float shared[2];
    size_t at = (size_t)blockIdx.y * a.r.ldx + blockIdx.x * a.r.n;
    const float *x = a.r.x + at, *from = x;
    float *y = a.r.y + (size_t)blockIdx.y * a.r.ldy + blockIdx.x * a.r.n, m, s;

    if (staged) {
#pragma unroll 4
        for (size_t i = threadIdx.x; i < a.r.n; i += THREADS)
            stage[i] = x[i];
        from = stage;
        __syncthreads();
    }
    if (threadIdx.x < WARP) {
        factors<K>(from, a.r.n, a.eps, &m, &s);
        if (threadIdx.x == 0) {
            shared[0] = m;
            shared[1] = s;
        }
    }
    __syncthreads();
    m = shared[0];
    s = shared[1];
    for (size_t i = threadIdx.x; i < a.r.n; i += THREADS)
        y[i] = value<K>(a, from[i], m, s, i, K == NORM_GATED ? a.b + at : NULL);
}

template <norm_kind K> static void launch(const norm_args &a, cudaStream_t s)
{
    if (!a.r.rows || !a.r.pieces)
        return;
    if (a.r.n <= SHORT) {
        dim3 grid((a.r.pieces + WARPS - 1) / WARPS, a.r.rows);
        by_warp<K><<<grid, WARPS * WARP, 0, s>>>(a);
    } else {
        dim3 grid(a.r.pieces, a.r.rows);
        int staged = a.r.n <= STAGED;
        by_block<K><<<grid, THREADS, staged ? a.r.n * sizeof(float) : 0, s>>>(a, staged);
    }
}

void rms_norm_cuda(const struct norm_rows *r, const float *w, float eps, cudaStream_t s)
{
    launch<NORM_RMS>({*r, w, NULL, eps}, s);
}

void rms_norm_gated_cuda(const struct norm_rows *r, const float *w, const float *act, float eps,
                         cudaStream_t s)
{
    launch<NORM_GATED>({*r, w, act, eps}, s);
}

void l2_norm_cuda(const struct norm_rows *r, float eps, cudaStream_t s)
{
    launch<NORM_L2>({*r, NULL, NULL, eps}, s);
}

void layer_norm_cuda(const struct norm_rows *r, const float *w, const float *b, float eps,
                     cudaStream_t s)
{
    launch<NORM_LAYER>({*r, w, b, eps}, s);
}
