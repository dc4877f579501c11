/* Q6_K, blocked, with AVX-512. */
#include "kernels/gemm/gemm.h"

#include "kernels/gemm/vec_avx512.h"

#include "kernels/gemm/q6_k_open.h"

void gemm_q6_k_avx512(const struct dot_job *job)
{
    gemm_a256(job);
}
