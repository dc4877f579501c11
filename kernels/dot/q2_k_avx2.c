/* Q2_K with AVX2. */
#include "kernels/dot/q2_k_avx2.h"

#include "kernels/dot/a256_avx2_form.h"

void dot_q2_k_avx2(const struct dot_job *job)
{
    job_a256(job);
}
