/* IQ2_XXS with AVX2. */
#include "kernels/dot/iq2_xxs_avx2.h"

#include "kernels/dot/a256_avx2_form.h"

void dot_iq2_xxs_avx2(const struct dot_job *job)
{
    job_a256(job);
}
