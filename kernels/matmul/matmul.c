/* Picks the form of a product. Decides nothing else: what a product is stands in kernels/dot. */
#include "kernels/matmul/matmul.h"
#include "kernels/cpu.h"
#include "kernels/dot/dot.h"
#include "kernels/gemm/gemm.h"
#include <assert.h>

void matmul(uint32_t type, const void *w, size_t row_bytes, size_t n_cols, size_t r0, size_t r1,
            const void *acts, size_t a_stride, const uint32_t *idx, size_t n_tok, float *y,
            size_t ldy)
{
    const struct dot_type *t = dot_type(type);
    enum cpu_level level = cpu_level();
    dot_form *blocked = gemm_form(type, level, r1 - r0, n_tok);
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

    assert(t && r0 <= r1 && n_cols % t->unit_values == 0);
    if (blocked)
        blocked(&job);
    else if (level >= CPU_VBMI && t->vbmi)
        t->vbmi(&job);
    else if (level >= CPU_AVX512 && t->avx512)
        t->avx512(&job);
    else if (level >= CPU_AVX2 && t->avx2)
        t->avx2(&job);
    else
        dot_reference(t, &job);
}

void dequant_row(uint32_t type, const void *row, size_t n_cols, float *out)
{
    const struct dot_type *t = dot_type(type);

    assert(t && n_cols % t->unit_values == 0);
    dot_widen_row(t, row, n_cols, out);
}
