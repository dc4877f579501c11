/* The expert's two stages, over any row range. Knows no slab, node or thread: a caller cuts rows
 * and the bits do not notice. */
#include "kernels/expert/expert.h"
#include "kernels/func/func.h"
#include "kernels/matmul/finish.h"
#include "kernels/matmul/matmul.h"

static void apply_scale(float *y, size_t n, float scale)
{
    if (scale != 1.0f) /* also taken for a NaN */
        product_finish(y, n, &scale, NULL);
}

void expert_gate_up(const struct expert_part *gate, const struct expert_part *up, size_t n_cols,
                    size_t r0, size_t r1, const void *acts_gate, size_t stride_gate,
                    const void *acts_up, size_t stride_up, const uint32_t *idx, size_t n_tok,
                    float limit, float *tmp, float *h, size_t ldh)
{
    size_t rows = r1 - r0, n = rows * n_tok;
    float *g = tmp, *u = tmp + n;

    if (gate->type == up->type && gate->row_bytes == up->row_bytes && acts_gate == acts_up) {
        matmul_two(gate->type, (const void *[]){gate->w, up->w}, gate->row_bytes, n_cols, r0, r1,
                   acts_gate, stride_gate, idx, n_tok, (float *[]){g, u}, rows);
    } else {
        matmul(gate->type, gate->w, gate->row_bytes, n_cols, r0, r1, acts_gate, stride_gate, idx,
               n_tok, g, rows);
        matmul(up->type, up->w, up->row_bytes, n_cols, r0, r1, acts_up, stride_up, idx, n_tok, u,
               rows);
    }
    apply_scale(g, n, gate->scale);
    apply_scale(u, n, up->scale);
    for (size_t i = 0; i < n_tok; i++)
        clamp_swiglu(g + i * rows, u + i * rows, limit, h + i * ldh, rows);
}

void expert_down(const struct expert_part *down, size_t n_cols, size_t r0, size_t r1,
                 const void *acts, size_t a_stride, size_t n_tok, float *y, size_t ldy)
{
    matmul(down->type, down->w, down->row_bytes, n_cols, r0, r1, acts, a_stride, NULL, n_tok, y,
           ldy);
    for (size_t i = 0; i < n_tok; i++)
        apply_scale(y + i * ldy, r1 - r0, down->scale);
}
