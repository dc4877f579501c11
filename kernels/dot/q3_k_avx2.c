/* Q3_K with AVX2. */
#include "kernels/dot/q3_k_avx2.h"

#include "kernels/dot/a256_avx2_form.h"

void dot_q3_k_avx2(const struct dot_job *job)
{
    job_a256(job);
}
