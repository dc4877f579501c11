/* An expert over a row range: gate and up with the activation in between, then down
 * (ARITHMETIC.md rules 14 and 19). The caller prepares the intermediate vector in between, and cuts
 * it, if at all, as rule 16 says. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct expert_part {
    uint32_t type;
    const void *w; /* row 0 of the matrix (borrows) */
    size_t row_bytes;
    float scale; /* 1: none (rule 14) */
};

/* h[i*ldh + (r-r0)] = silu(clamp(g)) * clamp(u) for rows r0..r1 of gate and up (rules 14, 19, 5);
 * limit <= 0: no clamp. acts_gate, acts_up: the vectors as each matrix's type wants them (the same
 * pointer, if that is the same form); idx as in matmul.h. tmp: at least 2*n_tok*(r1-r0) floats. */
void expert_gate_up(const struct expert_part *gate, const struct expert_part *up, size_t n_cols,
                    size_t r0, size_t r1, const void *acts_gate, size_t stride_gate,
                    const void *acts_up, size_t stride_up, const uint32_t *idx, size_t n_tok,
                    float limit, float *tmp, float *h, size_t ldh);

/* y[i*ldy + (r-r0)] = row r of down times vector i, for rows r0..r1, scale applied (rule 14). */
void expert_down(const struct expert_part *down, size_t n_cols, size_t r0, size_t r1,
                 const void *acts, size_t a_stride, size_t n_tok, float *y, size_t ldy);
