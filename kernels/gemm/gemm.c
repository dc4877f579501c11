/* Which types have a blocked form, and from how many vectors on it is faster than the form of
 * kernels/dot: measured with gemm_bench, and with weights out of cache. */
#include "kernels/gemm/gemm.h"

/* a panel mostly empty does not pay; with AVX2 five vectors do for every type */
enum { MIN_ROWS = 8, MIN_VECTORS_AVX2 = 5 };

struct forms {
    dot_form *avx2, *avx512;
    unsigned min_vectors; /* AVX-512 */
};

static const struct forms table[] = {
    [W_Q4_0] = {gemm_q4_0_avx2, gemm_q4_0_avx512, 5},
    [W_Q4_1] = {gemm_q4_1_avx2, gemm_q4_1_avx512, 5},
    [W_Q5_0] = {gemm_q5_0_avx2, gemm_q5_0_avx512, 5},
    [W_Q5_1] = {gemm_q5_1_avx2, gemm_q5_1_avx512, 5},
    [W_Q8_0] = {gemm_q8_0_avx2, gemm_q8_0_avx512, 6},
    [W_Q2_K] = {gemm_q2_k_avx2, gemm_q2_k_avx512, 5},
    [W_Q3_K] = {gemm_q3_k_avx2, gemm_q3_k_avx512, 5},
    [W_Q4_K] = {gemm_q4_k_avx2, gemm_q4_k_avx512, 3},
    [W_Q5_K] = {gemm_q5_k_avx2, gemm_q5_k_avx512, 5},
    [W_Q6_K] = {gemm_q6_k_avx2, gemm_q6_k_avx512, 5},
    [W_IQ4_NL] = {gemm_iq4_nl_avx2, gemm_iq4_nl_avx512, 5},
    [W_IQ4_XS] = {gemm_iq4_xs_avx2, gemm_iq4_xs_avx512, 2},
    [W_MXFP4] = {gemm_mxfp4_avx2, gemm_mxfp4_avx512, 3},
};

dot_form *gemm_form(uint32_t type, enum cpu_level level, size_t n_rows, size_t n_tok)
{
    const struct forms *f = &table[type < sizeof table / sizeof *table ? type : 0];

    if (level < CPU_AVX2 || n_rows < MIN_ROWS)
        return NULL;
    if (level == CPU_AVX2)
        return n_tok >= MIN_VECTORS_AVX2 ? f->avx2 : NULL;
    return n_tok >= f->min_vectors ? f->avx512 : NULL;
}
