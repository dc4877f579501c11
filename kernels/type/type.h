/* The value types of a model file (GGUF, ggml's numbers): names, block sizes and, for weights,
 * the form their products want the other operand in (ARITHMETIC.md rule 9). */
#pragma once
#include <stdint.h>

enum weight_type {
    W_F32 = 0,
    W_F16 = 1,
    W_Q4_0 = 2,
    W_Q4_1 = 3,
    W_Q5_0 = 6,
    W_Q5_1 = 7,
    W_Q8_0 = 8,
    W_Q2_K = 10,
    W_Q3_K = 11,
    W_Q4_K = 12,
    W_Q5_K = 13,
    W_Q6_K = 14,
    W_IQ2_XXS = 16,
    W_IQ2_XS = 17,
    W_IQ3_XXS = 18,
    W_IQ1_S = 19,
    W_IQ4_NL = 20,
    W_IQ3_S = 21,
    W_IQ2_S = 22,
    W_IQ4_XS = 23,
    W_IQ1_M = 29,
    W_BF16 = 30,
    W_MXFP4 = 39,
    W_NVFP4 = 40
};

/* a vector as a product's operand: plain f32, or quantised in units of 32 or 256 (rule 8) */
enum act_form { ACT_F32, ACT_A32, ACT_A256 };

struct type_info {
    const char *name;
    uint32_t block_values, block_bytes;
    enum act_form act;
    int built; /* 1: kernels exist; 0: known by name only (act says nothing then) */
};

/* NULL: unknown or removed id */
const struct type_info *type_info(uint32_t id);
/* Bytes of n_values packed values. 0, or -1: unknown id, no multiple of the block, overflow. */
int type_row_bytes(uint32_t id, uint64_t n_values, uint64_t *out);
