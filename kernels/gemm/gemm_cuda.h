/* Products of many vectors on a card, by int8 tensor cores: the bits of one vector at a time
 * (ARITHMETIC.md rule 16). Who multiplies calls kernels/matmul/matmul_cuda.h. */
#pragma once
#include "kernels/dot/dot_cuda.h"

/* Any number of vectors (the job's n_tok) with a quantised type; returns as the job's own form. A
 * card whose shared memory is too small for a type gets that form, eight vectors a launch. */
int gemm_cuda(uint32_t type, const struct dot_cuda_rows *job);
int gemm_load_cuda(void);

/* n vectors of one expert, at most GEMM_CUDA_TILE: those of its items from `item` on, all but the last of which are
 * full. */
enum { GEMM_CUDA_TILE = 128 };
struct gemm_cuda_tile {
    uint32_t item, n;
};
/* Matrix `which` of each tile's expert times the tile's vectors: the items' tok (by_row: row) of acts. Results go to
 * the items' rows of y, scaled (rule 14); activates: y holds the gate's, and gets the activation of both (rule 19).
 * How many tiles there are is read when the kernel runs. Device pointers all. */
struct gemm_cuda_many {
    const struct expert_slot *slots;
    const struct expert_item *items;
    const struct gemm_cuda_tile *tiles;
    const uint32_t *n_tiles;
    int which, by_row, activates;
    size_t row_bytes;
    uint32_t n_cols, n_rows;
    const uint8_t *acts;
    size_t a_stride;
    float limit;
    float *y;
    size_t ldy;
    struct CUstream_st *stream;
};
/* cudaErrorInvalidValue: no such type */
int gemm_many_cuda(uint32_t type, const struct gemm_cuda_many *job);
/* whether the type has such a kernel that this card has the shared memory for */
int gemm_many_there_cuda(uint32_t type);

/* one quantised type; launch, many: cudaErrorNotSupported where the card's shared memory is less than `shared` */
struct gemm_cuda_type {
    int (*launch)(const struct dot_cuda_rows *);
    int (*many)(const struct gemm_cuda_many *);
    int shared;
    int (*load)(void);
};
extern const struct gemm_cuda_type gemm_cuda_q4_0, gemm_cuda_q4_1, gemm_cuda_q5_0, gemm_cuda_q5_1;
extern const struct gemm_cuda_type gemm_cuda_q8_0, gemm_cuda_q2_k, gemm_cuda_q3_k, gemm_cuda_q4_k;
extern const struct gemm_cuda_type gemm_cuda_q5_k, gemm_cuda_q6_k, gemm_cuda_iq2_xxs;
extern const struct gemm_cuda_type gemm_cuda_iq2_xs, gemm_cuda_iq3_xxs, gemm_cuda_iq1_s;
extern const struct gemm_cuda_type gemm_cuda_iq4_nl, gemm_cuda_iq3_s, gemm_cuda_iq2_s;
extern const struct gemm_cuda_type gemm_cuda_iq4_xs, gemm_cuda_iq1_m, gemm_cuda_mxfp4;
extern const struct gemm_cuda_type gemm_cuda_nvfp4;
