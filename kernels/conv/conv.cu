/* A thread has one channel of one sequence and goes from token to token, its window in registers.
 */
#include "kernels/conv/conv_cuda.h"
#include "kernels/num.cuh"

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
