/* The launches of an expert's two stages. Gate and up of one quantised type go together; where their
 * types differ, or are float types, each goes alone into tmp, and a third launch joins them. */
#include "kernels/func/func.cuh"
extern "C" {
#include "kernels/dot/dot_cuda.h"
#include "kernels/expert/expert_cuda.h"
}

static bool together(const struct expert_shape *s)
{
    return s->type[EXPERT_GATE] == s->type[EXPERT_UP] &&
           s->row_bytes[EXPERT_GATE] == s->row_bytes[EXPERT_UP] &&
           dot_cuda_type(s->type[EXPERT_GATE]) && dot_cuda_type(s->type[EXPERT_GATE])->pair;
}

extern "C" size_t expert_cuda_tmp(const struct expert_shape *shape, uint32_t max_rows)
{
    return together(shape) ? 0 : 2 * (size_t)max_rows * shape->n_ff;
}

/* blockIdx.y walks over items, blockIdx.x over the elements of a row */
static __global__ void join(const expert_item *items, const uint32_t *n_items, const float *g,
                            const float *u, uint32_t n_ff, float limit, float *h, size_t ldh)
{
    for (uint32_t i = blockIdx.y; i < *n_items; i += gridDim.y)
        for (uint32_t k = 0; k < items[i].n_tok; k++) {
            size_t row = items[i].row[k];
            for (uint32_t r = blockIdx.x * blockDim.x + threadIdx.x; r < n_ff;
                 r += gridDim.x * blockDim.x)
                h[row * ldh + r] = cu_swiglu(g[row * n_ff + r], u[row * n_ff + r], limit);
        }
}

static struct dot_cuda_experts job(const struct expert_shape *s, const struct expert_work *work,
                                   int which, struct CUstream_st *stream)
{
    struct dot_cuda_experts j = {};

    j.slots = work->slots;
    j.items = work->items;
    j.n_items = work->n_items;
    j.most = work->max_rows;
    j.early = work->early;
    j.which = which;
    j.row_bytes = s->row_bytes[which];
    j.n_cols = which == EXPERT_DOWN ? s->n_ff : s->n_embd;
    j.n_rows = which == EXPERT_DOWN ? s->n_embd : s->n_ff;
    j.limit = s->limit;
    j.several = work->several;
    j.stream = stream;
    return j;
}

extern "C" int expert_gate_up_cuda(const struct expert_shape *shape,
                                   const struct expert_work *work, const void *acts_gate,
                                   size_t stride_gate, const void *acts_up, size_t stride_up,
                                   float *tmp, float *h, size_t ldh, struct CUstream_st *stream)
{
    enum { ITEMS_AT_ONCE = 8, JOINERS = 256 };
    const void *acts[2] = {acts_gate, acts_up};
    size_t stride[2] = {stride_gate, stride_up}, half = (size_t)work->max_rows * shape->n_ff;

    for (int m = 0; m < 2; m++) {
        const struct dot_cuda_type *t = dot_cuda_type(shape->type[m]);
        struct dot_cuda_experts j = job(shape, work, m, stream);
        bool both = together(shape);
        int e;

        if (!t)
            return cudaErrorInvalidValue;
        j.acts = (const uint8_t *)acts[m];
        j.a_stride = stride[m];
        j.y = both ? h : tmp + m * half;
        j.ldy = both ? ldh : shape->n_ff;
        e = both ? t->pair(&j) : t->single(&j);
        if (e || both)
            return e;
    }
    join<<<dim3((shape->n_ff + JOINERS - 1) / JOINERS, ITEMS_AT_ONCE), JOINERS, 0, stream>>>(
        work->items, work->n_items, tmp, tmp + half, shape->n_ff, shape->limit, h, ldh);
    return cudaGetLastError();
}

extern "C" int expert_down_cuda(const struct expert_shape *shape, const struct expert_work *work,
                                const float *h, size_t ldh, float *y, size_t ldy,
                                struct CUstream_st *stream)
{
    const struct dot_cuda_type *t = dot_cuda_type(shape->type[EXPERT_DOWN]);
    struct dot_cuda_experts j = job(shape, work, EXPERT_DOWN, stream);

    if (!t)
        return cudaErrorInvalidValue;
    j.hidden = h;
    j.ld_hidden = ldh;
    j.y = y;
    j.ldy = ldy;
    return t->single(&j);
}
