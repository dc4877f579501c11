/* One table of all value types that a file may name. Knows sizes, not meanings: those are in
 * kernels/dot/, one file a type. */
#include "kernels/type/type.h"
#include <stddef.h>

#define BUILT 1
#define NAMED ACT_F32, 0

static const struct type_info types[] = {
    [W_F32] = {"F32", 1, 4, ACT_F32, BUILT},
    [W_F16] = {"F16", 1, 2, ACT_F32, BUILT},
    [W_Q4_0] = {"Q4_0", 32, 18, ACT_A32, BUILT},
    [W_Q4_1] = {"Q4_1", 32, 20, ACT_A32, BUILT},
    [W_Q5_0] = {"Q5_0", 32, 22, ACT_A32, BUILT},
    [W_Q5_1] = {"Q5_1", 32, 24, ACT_A32, BUILT},
    [W_Q8_0] = {"Q8_0", 32, 34, ACT_A32, BUILT},
    [9] = {"Q8_1", 32, 36, NAMED},
    [W_Q2_K] = {"Q2_K", 256, 84, ACT_A256, BUILT},
    [W_Q3_K] = {"Q3_K", 256, 110, ACT_A256, BUILT},
    [W_Q4_K] = {"Q4_K", 256, 144, ACT_A256, BUILT},
    [W_Q5_K] = {"Q5_K", 256, 176, ACT_A256, BUILT},
    [W_Q6_K] = {"Q6_K", 256, 210, ACT_A256, BUILT},
    [15] = {"Q8_K", 256, 292, NAMED},
    [W_IQ2_XXS] = {"IQ2_XXS", 256, 66, ACT_A256, BUILT},
    [W_IQ2_XS] = {"IQ2_XS", 256, 74, ACT_A256, BUILT},
    [W_IQ3_XXS] = {"IQ3_XXS", 256, 98, ACT_A256, BUILT},
    [W_IQ1_S] = {"IQ1_S", 256, 50, ACT_A256, BUILT},
    [W_IQ4_NL] = {"IQ4_NL", 32, 18, ACT_A32, BUILT},
    [W_IQ3_S] = {"IQ3_S", 256, 110, ACT_A256, BUILT},
    [W_IQ2_S] = {"IQ2_S", 256, 82, ACT_A256, BUILT},
    [W_IQ4_XS] = {"IQ4_XS", 256, 136, ACT_A256, BUILT},
    [24] = {"I8", 1, 1, NAMED},
    [25] = {"I16", 1, 2, NAMED},
    [26] = {"I32", 1, 4, NAMED},
    [27] = {"I64", 1, 8, NAMED},
    [28] = {"F64", 1, 8, NAMED},
    [W_IQ1_M] = {"IQ1_M", 256, 56, ACT_A256, BUILT},
    [W_BF16] = {"BF16", 1, 2, ACT_F32, BUILT},
    [34] = {"TQ1_0", 256, 54, NAMED},
    [35] = {"TQ2_0", 256, 66, NAMED},
    [W_MXFP4] = {"MXFP4", 32, 17, ACT_A32, BUILT},
    [W_NVFP4] = {"NVFP4", 64, 36, ACT_A32, BUILT},
    [41] = {"Q1_0", 128, 18, NAMED},
    [42] = {"Q2_0", 64, 18, NAMED},
};

const struct type_info *type_info(uint32_t id)
{
    return id < sizeof types / sizeof *types && types[id].name ? &types[id] : NULL;
}

int type_row_bytes(uint32_t id, uint64_t n_values, uint64_t *out)
{
    const struct type_info *t = type_info(id);

    if (!t || n_values % t->block_values)
        return -1;
    return __builtin_mul_overflow(n_values / t->block_values, (uint64_t)t->block_bytes, out) ? -1
                                                                                             : 0;
}
