/* The table of the types' kernels. */
extern "C" {
#include "kernels/dot/dot_cuda.h"
#include "kernels/type/type.h"
}

extern "C" const struct dot_cuda_type *dot_cuda_type(uint32_t id)
{
    switch (id) {
    case W_F32:
        return &dot_cuda_f32;
    case W_F16:
        return &dot_cuda_f16;
    case W_BF16:
        return &dot_cuda_bf16;
    case W_Q4_0:
        return &dot_cuda_q4_0;
    case W_Q4_1:
        return &dot_cuda_q4_1;
    case W_Q5_0:
        return &dot_cuda_q5_0;
    case W_Q5_1:
        return &dot_cuda_q5_1;
    case W_Q8_0:
        return &dot_cuda_q8_0;
    case W_Q2_K:
        return &dot_cuda_q2_k;
    case W_Q3_K:
        return &dot_cuda_q3_k;
    case W_Q4_K:
        return &dot_cuda_q4_k;
    case W_Q5_K:
        return &dot_cuda_q5_k;
    case W_Q6_K:
        return &dot_cuda_q6_k;
    case W_IQ2_XXS:
        return &dot_cuda_iq2_xxs;
    case W_IQ2_XS:
        return &dot_cuda_iq2_xs;
    case W_IQ3_XXS:
        return &dot_cuda_iq3_xxs;
    case W_IQ1_S:
        return &dot_cuda_iq1_s;
    case W_IQ4_NL:
        return &dot_cuda_iq4_nl;
    case W_IQ3_S:
        return &dot_cuda_iq3_s;
    case W_IQ2_S:
        return &dot_cuda_iq2_s;
    case W_IQ4_XS:
        return &dot_cuda_iq4_xs;
    case W_IQ1_M:
        return &dot_cuda_iq1_m;
    case W_MXFP4:
        return &dot_cuda_mxfp4;
    case W_NVFP4:
        return &dot_cuda_nvfp4;
    default:
        return NULL;
    }
}
