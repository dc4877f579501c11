/* IQ2_S with AVX-512. */
#include "kernels/dot/iq2_s_avx2.h"

#include "kernels/dot/grid_avx512.h"

#include "kernels/dot/block_avx512.h"

#include "kernels/dot/a256_avx512_form.h"

#include "kernels/dot/a256_panel_avx512.h"

void dot_iq2_s_avx512(const struct dot_job *job)
{
    job_panel(job);
}
