/* A thread has one channel of one sequence and goes from token to token, its window in registers.
 */
#include "kernels/conv/conv_cuda.h"
#include "kernels/func/func.cuh"

enum { THREADS = 128 };

static __global__ void conv(conv_cuda c)
{
    size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x;
    unsigned before = c.width - 1;
    const float *from = c.from + blockIdx.y * before * c.n + i;
    float *to = c.to + blockIdx.y * before * c.n + i, row[CONV_CUDA_WIDTH], w[CONV_CUDA_WIDTH];
    bool any = false;

    if (i >= c.n)
        return;
#pragma unroll
    for (unsigned j = 0; j < CONV_CUDA_WIDTH; j++) {
        row[j] = j < before ? from[j * c.n] : 0.0f;
        w[j] = j < c.width ? c.w[i * c.width + j] : 0.0f;
    }
    for (unsigned t = 0; t < c.n_tokens; t++) {
        float acc = c.bias ? c.bias[i] : 0.0f;

        if (c.seq[t] != blockIdx.y)
            continue;
        any = true;
#pragma unroll
        for (unsigned j = 0; j < CONV_CUDA_WIDTH; j++) {
            if (j == before)
                row[j] = c.x[t * c.ldx + i];
            if (j < c.width)
                acc = __fmaf_rn(w[j], row[j], acc);
        }
        c.y[t * c.ldy + i] = cu_canon(acc);
#pragma unroll
        for (unsigned j = 0; j + 1 < CONV_CUDA_WIDTH; j++)
            row[j] = row[j + 1];
    }
#pragma unroll
    for (unsigned j = 0; j < CONV_CUDA_WIDTH; j++)
        if (any && j < before)
            to[j * c.n] = row[j];
}

void short_conv_cuda(const struct conv_cuda *c, cudaStream_t s)
{
    dim3 grid((unsigned)((c->n + THREADS - 1) / THREADS), c->n_slots);

    if (c->n && c->n_slots && c->n_tokens)
        conv<<<grid, THREADS, 0, s>>>(*c);
}

/* ---- tails in two versions: a thread has one channel of one token ---- */

static __device__ __forceinline__ float *tail_row(const tails_cuda &t, const run &r, unsigned version, uint32_t pos)
{
    return t.base + r.seq * t.seq_floats + ((size_t)version * t.keep + pos % t.keep) * t.n;
}

static __global__ void conv_runs(conv_runs_cuda c)
{
    size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x;
    unsigned t = blockIdx.y, n = c.tails.n, k = 0, at;
    float acc = 0.0f;
    run r;

    if (i >= n)
        return;
    while (t >= c.tails.run[k].first + c.tails.run[k].n)
        k++;
    r = c.tails.run[k];
    at = t - r.first;
    for (unsigned j = 0; j < c.width; j++) {
        unsigned back = (c.width - 1 - j) * c.gap; /* tokens before this one */
        float v = back <= at            ? c.x[(size_t)(t - back) * n + i]
                  : back - at <= r.pos ? tail_row(c.tails, r, r.from, r.pos + at - back)[i]
                                        : 0.0f;
        acc = __fmaf_rn(c.w[i * c.width + j], v, acc);
    }
    c.y[(size_t)t * n + i] = cu_canon(cu_silu(cu_canon(acc)));
}

/* Grid: channels, rows of the tail, runs. */
static __global__ void write_tails(tails_cuda t, const float *x, unsigned a, unsigned n)
{
    unsigned i = blockIdx.x * THREADS + threadIdx.x, back = t.keep - blockIdx.y; /* before the run's end */
    uint32_t end, pos;
    run r;

    if (i >= n || blockIdx.z >= *t.n_runs)
        return;
    r = t.run[blockIdx.z];
    end = r.pos + r.n;
    if (back > end)
        return;
    pos = end - back;
    tail_row(t, r, r.from ^ 1, pos)[a + i] = pos >= r.pos ? x[(size_t)(r.first + pos - r.pos) * n + i]
                                                          : tail_row(t, r, r.from, pos)[a + i];
}

void silu_conv_runs_cuda(const struct conv_runs_cuda *c, cudaStream_t s)
{
    dim3 grid((c->tails.n + THREADS - 1) / THREADS, c->n_tokens);

    if (c->tails.n && c->n_tokens)
        conv_runs<<<grid, THREADS, 0, s>>>(*c);
}

void tails_write_cuda(const struct tails_cuda *t, const float *x, unsigned a, unsigned n, cudaStream_t s)
{
    dim3 grid((n + THREADS - 1) / THREADS, t->keep, t->most_runs);

    if (n && t->keep && t->most_runs)
        write_tails<<<grid, THREADS, 0, s>>>(*t, x, a, n);
}
