/* A thread turns one pair. */
#include "kernels/num.cuh"
#include "kernels/rope/rope_cuda.h"

enum { THREADS = 128 };

static __global__ void turn(float *x, size_t ldx, unsigned pairs, unsigned head_values,
                            unsigned half, const float *cos, const float *sin, const uint32_t *pos)
{
    unsigned i = blockIdx.x * THREADS + threadIdx.x;

    if (i >= pairs)
        return;
    float *h = x + blockIdx.y * ldx + (size_t)(i / half) * head_values + i % half;
    size_t at = (size_t)pos[blockIdx.y] * half + i % half;
    float a = h[0], b = h[half], c = cos[at], s = sin[at];

    h[0] = cu_canon(__fmaf_rn(-b, s, __fmul_rn(a, c)));
    h[half] = cu_canon(__fmaf_rn(a, s, __fmul_rn(b, c)));
}

void rope_neox_cuda(float *x, size_t ldx, unsigned heads, unsigned head_values, unsigned n_rot,
                    const float *cos, const float *sin, const uint32_t *pos, unsigned n_tokens,
                    cudaStream_t s)
{
    unsigned pairs = heads * (n_rot / 2);
    dim3 grid((pairs + THREADS - 1) / THREADS, n_tokens);

    if (pairs && n_tokens)
        turn<<<grid, THREADS, 0, s>>>(x, ldx, pairs, head_values, n_rot / 2, cos, sin, pos);
}
