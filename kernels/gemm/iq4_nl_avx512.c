/* IQ4_NL, blocked, with AVX-512. */
#include "kernels/gemm/gemm.h"

#include "kernels/gemm/vec_avx512.h"

#include "kernels/gemm/iq4_nl_open.h"

void gemm_iq4_nl_avx512(const struct dot_job *job)
{
    gemm_a32(job);
}
