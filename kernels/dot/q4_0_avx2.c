/* Q4_0 with AVX2. */
#include "kernels/dot/q4_0_avx2.h"

#include "kernels/dot/a32_avx2_form.h"

void dot_q4_0_avx2(const struct dot_job *job)
{
    job_a32(job);
}
