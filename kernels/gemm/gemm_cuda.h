/* Products of many vectors on a card, by int8 tensor cores: the bits of one vector at a time
 * (ARITHMETIC.md rule 16). Who multiplies calls kernels/matmul/matmul_cuda.h. */
#pragma once
#include "kernels/dot/dot_cuda.h"

/* Any number of vectors (the job's n_tok) with a quantised type; returns as the job's own form. A
 * card whose shared memory is too small for a type gets that form, eight vectors a launch. */
int gemm_cuda(uint32_t type, const struct dot_cuda_rows *job);
int gemm_load_cuda(void);

/* one quantised type; launch: cudaErrorNotSupported where the card's shared memory is too small */
struct gemm_cuda_type {
    int (*launch)(const struct dot_cuda_rows *);
    int (*load)(void);
};
extern const struct gemm_cuda_type gemm_cuda_q4_0, gemm_cuda_q4_1, gemm_cuda_q5_0, gemm_cuda_q5_1;
extern const struct gemm_cuda_type gemm_cuda_q8_0, gemm_cuda_q2_k, gemm_cuda_q3_k, gemm_cuda_q4_k;
extern const struct gemm_cuda_type gemm_cuda_q5_k, gemm_cuda_q6_k, gemm_cuda_iq2_xxs;
extern const struct gemm_cuda_type gemm_cuda_iq2_xs, gemm_cuda_iq3_xxs, gemm_cuda_iq1_s;
extern const struct gemm_cuda_type gemm_cuda_iq4_nl, gemm_cuda_iq3_s, gemm_cuda_iq2_s;
extern const struct gemm_cuda_type gemm_cuda_iq4_xs, gemm_cuda_iq1_m, gemm_cuda_mxfp4;
extern const struct gemm_cuda_type gemm_cuda_nvfp4;
