/* Which types have tensor-core kernels (all quantised ones), and what happens on a card too small for
 * one. */
#include <cuda_runtime_api.h>
extern "C" {
#include "kernels/gemm/gemm_cuda.h"
#include "kernels/type/type.h"
}

static const struct gemm_cuda_type *gemm_type(uint32_t id)
{
    switch (id) {
    case W_Q4_0:
        return &gemm_cuda_q4_0;
    case W_Q4_1:
        return &gemm_cuda_q4_1;
    case W_Q5_0:
        return &gemm_cuda_q5_0;
    case W_Q5_1:
        return &gemm_cuda_q5_1;
    case W_Q8_0:
        return &gemm_cuda_q8_0;
    case W_Q2_K:
        return &gemm_cuda_q2_k;
    case W_Q3_K:
        return &gemm_cuda_q3_k;
    case W_Q4_K:
        return &gemm_cuda_q4_k;
    case W_Q5_K:
        return &gemm_cuda_q5_k;
    case W_Q6_K:
        return &gemm_cuda_q6_k;
    case W_IQ2_XXS:
        return &gemm_cuda_iq2_xxs;
    case W_IQ2_XS:
        return &gemm_cuda_iq2_xs;
    case W_IQ3_XXS:
        return &gemm_cuda_iq3_xxs;
    case W_IQ1_S:
        return &gemm_cuda_iq1_s;
    case W_IQ4_NL:
        return &gemm_cuda_iq4_nl;
    case W_IQ3_S:
        return &gemm_cuda_iq3_s;
    case W_IQ2_S:
        return &gemm_cuda_iq2_s;
    case W_IQ4_XS:
        return &gemm_cuda_iq4_xs;
    case W_IQ1_M:
        return &gemm_cuda_iq1_m;
    case W_MXFP4:
        return &gemm_cuda_mxfp4;
    case W_NVFP4:
        return &gemm_cuda_nvfp4;
    default:
        return NULL;
    }
}

extern "C" int gemm_load_cuda(void)
{
    int e = 0;

    for (uint32_t id = 0; id < 64 && !e; id++)
        if (gemm_type(id))
            e = gemm_type(id)->load();
    return e;
}

extern "C" int gemm_cuda(uint32_t type, const struct dot_cuda_rows *job)
{
    const struct gemm_cuda_type *g = gemm_type(type);
    struct dot_cuda_rows j = *job;
    int e = g ? g->launch(job) : cudaErrorInvalidValue;

    if (e != cudaErrorNotSupported)
        return e;
    e = 0;
    for (uint32_t t = 0; t < job->n_tok && !e; t += DOT_CUDA_TOKENS) {
        j.n_tok = job->n_tok - t;
        if (j.n_tok > DOT_CUDA_TOKENS)
            j.n_tok = DOT_CUDA_TOKENS;
        j.idx = job->idx ? job->idx + t : NULL;
        j.acts = job->idx ? job->acts : job->acts + t * job->a_stride;
        j.y = job->y + t * job->ldy;
        e = dot_cuda_type(type)->rows(&j);
    }
    return e;
}

extern "C" int gemm_many_cuda(uint32_t type, const struct gemm_cuda_many *job)
{
    const struct gemm_cuda_type *g = gemm_type(type);

    return g ? g->many(job) : cudaErrorInvalidValue;
}
extern "C" int gemm_many_there_cuda(uint32_t type)
{
    const struct gemm_cuda_type *g = gemm_type(type);
    int dev, most;

    return g && !cudaGetDevice(&dev) && !cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, dev) &&
           g->shared <= most;
}
