/* Short vectors: a warp has one, its lanes are SUM32's. Long ones: a block has one; all its threads
 * load it and write the result, its first warp makes the sum, so that the order is the same. What a
 * thread needs is loaded at once, before the first use: one wait for memory, not one a value. */
#include "kernels/norm/norm_cuda.h"
#include "kernels/sum/sum.cuh"

enum norm_kind { NORM_RMS, NORM_GATED, NORM_L2, NORM_LAYER };
enum {
    HELD = 16,            /* values of a thread, in registers */
    SHORT = HELD * WARP,  /* values, up to which a warp works alone */
    WARPS = 4,            /* vectors of a block of short ones */
    LONG_THREADS = 256,   /* of a block for a long vector, up to 4096 values */
    LONGER_THREADS = 512, /* up to 8192 */
    ANY_THREADS = 512,    /* more: pieces of */
    PIECE = 8192,
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

/* x_i of lane i % 32, ascending, from HELD registers of a lane; those from n on are not terms */
template <norm_kind K>
static __device__ __forceinline__ void factors_held(const float v[HELD], size_t n, float eps,
                                                    float *m, float *s)
{
    unsigned lane = threadIdx.x % WARP;
    float acc = 0.0f;

    *m = 0.0f;
    if (K == NORM_LAYER) {
#pragma unroll
        for (int k = 0; k < HELD; k++)
            acc = k * WARP + lane < n ? __fadd_rn(acc, v[k]) : acc;
        *m = __fdiv_rn(cu_fold32(acc), (float)n);
        acc = 0.0f;
    }
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        float c = K == NORM_LAYER ? __fsub_rn(v[k], *m) : v[k];
        acc = k * WARP + lane < n ? __fmaf_rn(c, c, acc) : acc;
    }
    *s = one_over_root(cu_fold32(acc), n, eps, K);
}

/* The same of a staged vector by one warp, HELD loads at a time; the stage is zero from n to the
 * next multiple of SHORT, and fma(0, 0, acc) is acc (rule 4: no chain here is ever -0). */
template <norm_kind K>
static __device__ __forceinline__ void factors_staged(const float *stage, size_t n, float eps,
                                                      float *m, float *s)
{
    unsigned lane = threadIdx.x % WARP;
    float acc = 0.0f;

    *m = K == NORM_LAYER ? __fdiv_rn(cu_sum32(stage, n), (float)n) : 0.0f;
    for (size_t i = lane; K != NORM_LAYER && i < n + lane; i += SHORT) {
        float v[HELD];
#pragma unroll
        for (int k = 0; k < HELD; k++)
            v[k] = stage[i + k * WARP];
#pragma unroll
        for (int k = 0; k < HELD; k++)
            acc = __fmaf_rn(v[k], v[k], acc);
    }
    *s = one_over_root(K == NORM_LAYER ? around(stage, n, *m) : cu_fold32(acc), n, eps, K);
}

/* HELD values of a thread, `step` apart; 0 from n on */
static __device__ __forceinline__ void load_held(const float *x, size_t first, size_t step,
                                                 size_t n, float v[HELD])
{
#pragma unroll
    for (int k = 0; k < HELD; k++)
        v[k] = first + k * step < n ? x[first + k * step] : 0.0f;
}

template <norm_kind K>
static __device__ __forceinline__ float value(float x, float w, float b, bool weighted, float m,
                                              float s)
{
    if (K == NORM_LAYER)
        return cu_canon(__fmaf_rn(__fmul_rn(__fsub_rn(x, m), s), w, b));
    x = __fmul_rn(x, s);
    if (K == NORM_GATED)
        return cu_canon(__fmul_rn(__fmul_rn(x, w), b));
    return cu_canon(weighted ? __fmul_rn(x, w) : x);
}

/* what follows x: weights, and the bias or what a gated norm multiplies with */
template <norm_kind K>
static __device__ __forceinline__ void load_others(const norm_args &a, size_t at, unsigned piece, size_t first,
                                                   size_t step, float w[HELD], float b[HELD])
{
    if (K != NORM_L2 && a.w)
        load_held(a.w + (a.r.each ? piece * a.r.n : 0), first, step, a.r.n, w);
    if (K == NORM_LAYER)
        load_held(a.b, first, step, a.r.n, b);
    if (K == NORM_GATED)
        load_held(a.b + at, first, step, a.r.n, b);
}

template <norm_kind K>
static __device__ __forceinline__ void
store_all(const norm_args &a, float *y, size_t first, size_t step, const float v[HELD],
          const float w[HELD], const float b[HELD], float m, float s)
{
    bool weighted = K == NORM_RMS && a.w;

#pragma unroll
    for (int k = 0; k < HELD; k++)
        if (first + k * step < a.r.n)
            y[first + k * step] = value<K>(v[k], w[k], b[k], weighted, m, s);
}

template <norm_kind K> static __global__ void __launch_bounds__(WARPS *WARP) by_warp(norm_args a)
{
    unsigned piece = blockIdx.x * WARPS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    size_t at = (size_t)blockIdx.y * a.r.ldx + piece * a.r.n;
    float *y = a.r.y + (size_t)blockIdx.y * a.r.ldy + piece * a.r.n;
    float v[HELD], w[HELD], b[HELD], m, s;

    if (piece >= a.r.pieces)
        return;
    load_held(a.r.x + at, lane, WARP, a.r.n, v);
    load_others<K>(a, at, piece, lane, WARP, w, b);
    factors_held<K>(v, a.r.n, a.eps, &m, &s);
    store_all<K>(a, y, lane, WARP, v, w, b, m, s);
}

template <norm_kind K, int THREADS>
static __global__ void __launch_bounds__(THREADS) by_block(norm_args a)
{
    __shared__ float stage[THREADS * HELD], shared[2];
    size_t at = (size_t)blockIdx.y * a.r.ldx + blockIdx.x * a.r.n;
    float *y = a.r.y + (size_t)blockIdx.y * a.r.ldy + blockIdx.x * a.r.n;
    float v[HELD], w[HELD], b[HELD], m, s;

    load_held(a.r.x + at, threadIdx.x, THREADS, a.r.n, v);
    load_others<K>(a, at, blockIdx.x, threadIdx.x, THREADS, w, b);
#pragma unroll
    for (int k = 0; k < HELD; k++) /* zeros behind n too */
        stage[threadIdx.x + k * THREADS] = v[k];
    __syncthreads();
    if (threadIdx.x < WARP) {
        factors_staged<K>(stage, a.r.n, a.eps, &m, &s);
        if (threadIdx.x == 0) {
            shared[0] = m;
            shared[1] = s;
        }
    }
    __syncthreads();
    store_all<K>(a, y, threadIdx.x, THREADS, v, w, b, shared[0], shared[1]);
}

/* The first warp's sum of squares of any length; all threads bring the vector, a piece at a time, zero behind its end
 * (fma(0, 0, acc) is acc). */
static __device__ __forceinline__ float staged_squares(const float *x, size_t n)
{
    __shared__ float stage[PIECE];
    unsigned lane = threadIdx.x % WARP;
    float acc = 0.0f;

    for (size_t base = 0; base < n; base += PIECE) {
        size_t left = n - base < PIECE ? n - base : PIECE;
#pragma unroll
        for (unsigned k = 0; k < PIECE / ANY_THREADS; k++) {
            size_t i = threadIdx.x + k * ANY_THREADS;
            stage[i] = i < left ? x[base + i] : 0.0f;
        }
        __syncthreads();
        for (size_t i = lane; threadIdx.x < WARP && i < left + lane; i += SHORT) {
            float v[HELD];
#pragma unroll
            for (int k = 0; k < HELD; k++)
                v[k] = stage[i + k * WARP];
#pragma unroll
            for (int k = 0; k < HELD; k++)
                acc = __fmaf_rn(v[k], v[k], acc);
        }
        __syncthreads();
    }
    return threadIdx.x < WARP ? cu_fold32(acc) : 0.0f;
}

/* any length */
template <norm_kind K> static __global__ void by_any(norm_args a)
{
    __shared__ float shared[2];
    size_t at = (size_t)blockIdx.y * a.r.ldx + blockIdx.x * a.r.n, n = a.r.n;
    const float *x = a.r.x + at;
    float *y = a.r.y + (size_t)blockIdx.y * a.r.ldy + blockIdx.x * n;

    if (K != NORM_LAYER) {
        float ss = staged_squares(x, n);
        if (threadIdx.x == 0)
            shared[1] = one_over_root(ss, n, a.eps, K);
    } else if (threadIdx.x < WARP) {
        float m = __fdiv_rn(cu_sum32(x, n), (float)n), s = one_over_root(around(x, n, m), n, a.eps, K);
        if (threadIdx.x == 0) {
            shared[0] = m;
            shared[1] = s;
        }
    }
    __syncthreads();
    for (size_t i = threadIdx.x; i < n; i += ANY_THREADS) {
        float w = K != NORM_L2 && a.w ? a.w[(a.r.each ? blockIdx.x * n : 0) + i] : 0.0f;
        float b = K == NORM_LAYER ? a.b[i] : K == NORM_GATED ? a.b[at + i] : 0.0f;
        y[i] = value<K>(x[i], w, b, K == NORM_RMS && a.w, shared[0], shared[1]);
    }
}

template <norm_kind K> static void launch(const norm_args &a, cudaStream_t s)
{
    if (!a.r.rows || !a.r.pieces)
        return;
    if (a.r.n <= SHORT) {
        dim3 grid((a.r.pieces + WARPS - 1) / WARPS, a.r.rows);
        by_warp<K><<<grid, WARPS * WARP, 0, s>>>(a);
        return;
    }
    dim3 grid(a.r.pieces, a.r.rows);
    if (a.r.n <= LONG_THREADS * HELD)
        by_block<K, LONG_THREADS><<<grid, LONG_THREADS, 0, s>>>(a);
    else if (a.r.n <= LONGER_THREADS * HELD)
        by_block<K, LONGER_THREADS><<<grid, LONGER_THREADS, 0, s>>>(a);
    else
        by_any<K><<<grid, ANY_THREADS, 0, s>>>(a);
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
