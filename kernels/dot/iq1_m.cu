/* IQ1_M on a card: how a block opens stands in types.cuh, the kernels in dot.cuh and form.cuh. */
#include "kernels/dot/form.cuh"

DOT_CUDA_TYPE(iq1_m);
