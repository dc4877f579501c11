/* Prompts in Q2_K on a card: gemm.cuh with the type's way to open. */
#include "kernels/gemm/gemm.cuh"
extern "C" {
#include "kernels/gemm/gemm_cuda.h"
}

GEMM_CUDA_TYPE(q2_k);
