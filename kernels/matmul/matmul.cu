/* Picks the kernel of a product on a card: few vectors are bound by reading the weights
 * (kernels/dot), many by multiplying (kernels/gemm). */
#include <cuda_runtime_api.h>
extern "C" {
#include "kernels/dot/dot_cuda.h"
#include "kernels/gemm/gemm_cuda.h"
#include "kernels/matmul/matmul_cuda.h"
#include "kernels/type/type.h"
}

enum { HALF = DOT_CUDA_TOKENS / 2 };

extern "C" int products_load_cuda(void)
{
    int e = 0;

    for (uint32_t id = 0; id < 64 && !e; id++) {
        const struct dot_cuda_type *t = dot_cuda_type(id);
        if (t)
            e = t->load();
    }
    return e ? e : gemm_load_cuda();
}

extern "C" int matmul_cuda(uint32_t type, const void *w, size_t row_bytes, uint32_t n_cols,
                           uint32_t n_rows, const void *acts, size_t a_stride, const uint32_t *idx,
                           uint32_t n_tok, const float *scale, const float *bias, float *y,
                           size_t ldy, struct CUstream_st *stream)
{
    const struct dot_cuda_type *t = dot_cuda_type(type);
    const struct type_info *info = type_info(type);
    struct dot_cuda_rows j = {};

    if (!t || n_cols % info->block_values)
        return cudaErrorInvalidValue;
    j.w = (const uint8_t *)w;
    j.row_bytes = row_bytes;
    j.n_cols = n_cols;
    j.n_rows = n_rows;
    j.acts = (const uint8_t *)acts;
    j.a_stride = a_stride;
    j.idx = idx;
    j.n_tok = n_tok;
    j.scale = scale;
    j.bias = bias;
    j.y = y;
    j.ldy = ldy;
    j.stream = stream;
    if (n_tok > DOT_CUDA_TOKENS && info->act != ACT_F32)
        return gemm_cuda(type, &j);
    int e = t->rows(&j);
    if (e != cudaErrorInvalidValue || n_tok <= HALF || n_tok > 2 * HALF)
        return e;
    /* so many vectors' sums of rows as long as these do not fit into shared memory: by halves */
    j.n_tok = HALF;
    if ((e = t->rows(&j)))
        return e;
    j.n_tok = n_tok - HALF;
    j.idx = idx ? idx + HALF : NULL;
    j.acts += idx ? 0 : HALF * a_stride;
    j.y += HALF * ldy;
    return t->rows(&j);
}
