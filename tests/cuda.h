/* What tests of CUDA kernels need beside test.h: a card or a counted skip, checked calls, and
 * device copies of host arrays. For .cu files. */
#pragma once
#include "tests/test.h"
#include <cuda_runtime_api.h>
#include <stdlib.h>

#define CUDA_OK(call)                                                                              \
    do {                                                                                           \
        cudaError_t e_ = (cudaError_t)(call);                                                      \
        if (e_ != cudaSuccess) {                                                                   \
            printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e_));          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* 0: there is no card, a skip was counted, the test ends */
static inline int cuda_card(void)
{
    int n = 0;
    cudaError_t e = cudaGetDeviceCount(&n);

    if (e == cudaSuccess && n > 0)
        return 1;
    SKIP("no CUDA card here (%s)", cudaGetErrorString(e));
    return 0;
}
/* bytes on the card, filled with a byte that no result leaves standing */
static inline void *cuda_room(size_t bytes)
{
    void *p;

    CUDA_OK(cudaMalloc(&p, bytes));
    CUDA_OK(cudaMemset(p, 0x55, bytes));
    return p;
}
/* a copy of host bytes at `shift` bytes into an allocation of whole 16-byte pieces; *base: to free */
static inline void *cuda_copy_at(const void *from, size_t bytes, size_t shift, void **base)
{
    char *p = (char *)cuda_room((shift + bytes + 31) & ~(size_t)15);

    CUDA_OK(cudaMemcpy(p + shift, from, bytes, cudaMemcpyHostToDevice));
    *base = p;
    return p + shift;
}
static inline void *cuda_copy(const void *from, size_t bytes)
{
    void *base;

    return cuda_copy_at(from, bytes, 0, &base);
}
static inline void cuda_back(void *to, const void *from, size_t bytes)
{
    CUDA_OK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
}
