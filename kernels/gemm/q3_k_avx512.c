/* Q3_K, blocked, with AVX-512. */
#include "kernels/gemm/gemm.h"

#include "kernels/gemm/vec_avx512.h"

#include "kernels/gemm/q3_k_open.h"

void gemm_q3_k_avx512(const struct dot_job *job)
{
    gemm_a256(job);
}
