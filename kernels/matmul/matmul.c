/* Picks the form of a product. Decides nothing else: what a product is stands in kernels/dot. */
#include "kernels/matmul/matmul.h"
#include "kernels/cpu.h"
#include "kernels/dot/dot.h"
#include "kernels/gemm/gemm.h"
#include <assert.h>

/* the form for so many rows and vectors; NULL: the reference */
static dot_form *form_of(const struct dot_type *t, uint32_t type, size_t n_rows, size_t n_tok)
{
    enum cpu_level level = cpu_level();
    dot_form *form = gemm_form(type, level, n_rows, n_tok);

    for (; !form && level > CPU_GENERIC; level--)
        form = dot_form_at(t, level);
    return form;
}

void matmul(uint32_t type, const void *w, size_t row_bytes, size_t n_cols, size_t r0, size_t r1,
            const void *acts, size_t a_stride, const uint32_t *idx, size_t n_tok, float *y,
            size_t ldy)
{
    const struct dot_type *t = dot_type(type);
    struct dot_job job = {.w = (const uint8_t *)w + r0 * row_bytes,
                          .row_bytes = row_bytes,
                          .n_cols = n_cols,
                          .n_rows = r1 - r0,
                          .acts = acts,
                          .a_stride = a_stride,
                          .idx = idx,
                          .n_tok = n_tok,
                          .y = y,
                          .ldy = ldy};
    dot_form *form;

    assert(t && r0 <= r1 && n_cols % t->unit_values == 0);
    form = form_of(t, type, r1 - r0, n_tok);
    if (form)
        form(&job);
    else
        dot_reference(t, &job);
}

void matmul_two(uint32_t type, const void *const w[2], size_t row_bytes, size_t n_cols, size_t r0,
                size_t r1, const void *acts, size_t a_stride, const uint32_t *idx, size_t n_tok,
                float *const y[2], size_t ldy)
{
    const struct dot_type *t = dot_type(type);
    struct dot_job job = {.row_bytes = row_bytes,
                          .n_cols = n_cols,
                          .n_rows = r1 - r0,
                          .acts = acts,
                          .a_stride = a_stride,
                          .idx = idx,
                          .n_tok = n_tok,
                          .ldy = ldy}, second = job;

    assert(t && r0 <= r1 && n_cols % t->unit_values == 0);
    if (!t->vbmi || form_of(t, type, r1 - r0, n_tok) != t->vbmi) {
        for (int i = 0; i < 2; i++)
            matmul(type, w[i], row_bytes, n_cols, r0, r1, acts, a_stride, idx, n_tok, y[i], ldy);
        return;
    }
    job.w = (const uint8_t *)w[0] + r0 * row_bytes;
    job.y = y[0];
    job.also = &second;
    second.w = (const uint8_t *)w[1] + r0 * row_bytes;
    second.y = y[1];
    t->vbmi(&job);
}

void dequant_row(uint32_t type, const void *row, size_t n_cols, float *out)
{
    const struct dot_type *t = dot_type(type);

    assert(t && n_cols % t->unit_values == 0);
    dot_widen_row(t, row, n_cols, out);
}
