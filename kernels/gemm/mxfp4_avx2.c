/* MXFP4, blocked, with AVX2. */
#include "kernels/gemm/gemm.h"

#include "kernels/gemm/vec_avx2.h"

#include "kernels/gemm/mxfp4_open.h"

void gemm_mxfp4_avx2(const struct dot_job *job)
{
    gemm_a32(job);
}
