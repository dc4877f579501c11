/* Q4_0, blocked, with AVX2. */
#include "kernels/gemm/gemm.h"

#include "kernels/gemm/vec_avx2.h"

#include "kernels/gemm/q4_0_open.h"

void gemm_q4_0_avx2(const struct dot_job *job)
{
    gemm_a32(job);
}
