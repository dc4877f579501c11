/* MXFP4, blocked, with AVX-512. */
#include "kernels/gemm/gemm.h"

#include "kernels/gemm/vec_avx512.h"

#include "kernels/gemm/mxfp4_open.h"

void gemm_mxfp4_avx512(const struct dot_job *job)
{
    gemm_a32(job);
}
