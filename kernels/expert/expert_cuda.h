/* The fused expert on a card (ARITHMETIC.md rules 14, 19 and 27): two launches for all items of a
 * layer, whatever their number. Which slots work for which vectors is read from device memory, so
 * that one captured graph serves every step. Launchers allocate nothing and wait for nothing, and
 * return 0 or a cudaError_t. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct CUstream_st;

enum { EXPERT_GATE, EXPERT_UP, EXPERT_DOWN, EXPERT_MATS, EXPERT_TOKENS = 8 };

/* An expert on the card: device pointers, 16-byte aligned, readable to the end of the sixteen bytes
 * in which the matrix ends; rule 14's factors, 1: none. */
struct expert_slot {
    const void *w[EXPERT_MATS];
    float scale[EXPERT_MATS];
};
/* One expert's work: vector tok[j] of the layer, result in row row[j] (unique over all items). */
struct expert_item {
    uint32_t slot, n_tok; /* n_tok: 1 .. EXPERT_TOKENS */
    uint32_t tok[EXPERT_TOKENS], row[EXPERT_TOKENS];
};
struct expert_shape {
    uint32_t type[EXPERT_MATS];
    size_t row_bytes[EXPERT_MATS];
    uint32_t n_embd, n_ff;
    float limit; /* <= 0: no clamp */
};
/* What a layer's items are, in device memory: n_items is read when the kernels run. max_rows: rows
 * of results that items may name; as many items may be read, whatever n_items says. several: 0 promises that no
 * item has more than one vector. early: 1 promises that the launch before the first one does not write slots, items
 * or n_items, and waited for all before it: they may be read, and weights asked for, before it has ended. */
struct expert_work {
    const struct expert_slot *slots;
    const struct expert_item *items;
    const uint32_t *n_items;
    uint32_t max_rows;
    int several, early;
};

/* floats of `tmp` below; 0 where gate and up have one quantised type */
size_t expert_cuda_tmp(const struct expert_shape *shape, uint32_t max_rows);

/* h[row * ldh + r] = silu(clamp(g)) * clamp(u), r < n_ff. acts_gate, acts_up: the layer's vectors as
 * each matrix's type wants them (act_prepare_cuda), the same pointer if that is one form. */
int expert_gate_up_cuda(const struct expert_shape *shape, const struct expert_work *work,
                        const void *acts_gate, size_t stride_gate, const void *acts_up,
                        size_t stride_up, float *tmp, float *h, size_t ldh,
                        struct CUstream_st *stream);
/* y[row * ldy + r] = row r of down times h's row, quantised by the same launch; r < n_embd. h:
 * 16-byte aligned, ldh % 4 == 0. */
int expert_down_cuda(const struct expert_shape *shape, const struct expert_work *work,
                     const float *h, size_t ldh, float *y, size_t ldy, struct CUstream_st *stream);
