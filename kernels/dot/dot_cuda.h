/* The card's forms of kernels/dot: who multiplies calls kernels/matmul/matmul_cuda.h and
 * kernels/expert/expert_cuda.h. All pointers of jobs are device pointers. A form returns 0 or a
 * cudaError_t; it allocates nothing and waits for nothing, so that it may be captured. */
#pragma once
#include "kernels/expert/expert_cuda.h"
#include <stddef.h>
#include <stdint.h>

/* y[i * ldy + r] = row r of w times vector idx ? idx[i] : i, then scale and bias (rule 14), n_tok
 * at most DOT_CUDA_TOKENS. w: 16-byte aligned; readable to the end of the sixteen bytes in which
 * the last row ends. Vectors as act_prepare_cuda makes them, a_stride bytes apart. */
struct dot_cuda_rows {
    const uint8_t *w;
    size_t row_bytes;
    uint32_t n_cols, n_rows;
    const uint8_t *acts;
    size_t a_stride;
    const uint32_t *idx;
    uint32_t n_tok;
    const float *scale, *bias; /* one number, n_rows numbers; NULL: none */
    float *y;
    size_t ldy;
    struct CUstream_st *stream;
};
enum { DOT_CUDA_TOKENS = 8 };

/* One or two matrices of every item's expert times the item's vectors.
 * pair: matrices 0 and 1, y = the activation of both (rule 19). single: matrix `which`, from
 * prepared vectors (acts) or from hidden rows of f32 that it prepares itself (acts NULL). */
struct dot_cuda_experts {
    const struct expert_slot *slots;
    const struct expert_item *items;
    const uint32_t *n_items;
    uint32_t most; /* items, at most */
    int early;     /* expert_work's */
    int which;
    size_t row_bytes;
    uint32_t n_cols, n_rows; /* of one matrix */
    const uint8_t *acts;
    size_t a_stride;
    const float *hidden; /* item.row[j] * ld_hidden */
    size_t ld_hidden;
    float limit;
    float *y; /* item.row[j] * ldy */
    size_t ldy;
    int several; /* 0: no item has more than one vector */
    struct CUstream_st *stream;
};

struct dot_cuda_type {
    int (*rows)(const struct dot_cuda_rows *);
    int (*pair)(const struct dot_cuda_experts *); /* NULL: float types */
    int (*single)(const struct dot_cuda_experts *);
    int (*load)(void); /* loads the kernels into the current context and allows their memory */
};
/* NULL: no kernels for this id */
const struct dot_cuda_type *dot_cuda_type(uint32_t id);

extern const struct dot_cuda_type dot_cuda_f32, dot_cuda_f16, dot_cuda_bf16, dot_cuda_q4_0;
extern const struct dot_cuda_type dot_cuda_q4_1, dot_cuda_q5_0, dot_cuda_q5_1, dot_cuda_q8_0;
extern const struct dot_cuda_type dot_cuda_q2_k, dot_cuda_q3_k, dot_cuda_q4_k, dot_cuda_q5_k;
extern const struct dot_cuda_type dot_cuda_q6_k, dot_cuda_iq2_xxs, dot_cuda_iq2_xs;
extern const struct dot_cuda_type dot_cuda_iq3_xxs, dot_cuda_iq1_s, dot_cuda_iq4_nl, dot_cuda_iq3_s;
extern const struct dot_cuda_type dot_cuda_iq2_s, dot_cuda_iq4_xs, dot_cuda_iq1_m, dot_cuda_mxfp4;
extern const struct dot_cuda_type dot_cuda_nvfp4;
