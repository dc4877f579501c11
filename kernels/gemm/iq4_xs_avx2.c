/* IQ4_XS, blocked, with AVX2. */
#include "kernels/gemm/gemm.h"

#include "kernels/gemm/vec_avx2.h"

#include "kernels/gemm/iq4_xs_open.h"

void gemm_iq4_xs_avx2(const struct dot_job *job)
{
    gemm_a256(job);
}
