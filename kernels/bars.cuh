/* Barriers in shared memory (mbarrier), by shared address, eight bytes each: some threads arrive, others
 * wait, and the copy engine counts its bytes against one. Nothing before sm_90. What a thread wrote before
 * it arrived is there for who waited; every thread that writes arrives itself, so that racecheck can
 * follow. */
#pragma once
#include <stdint.h>

static __device__ __forceinline__ void bar_init(uint32_t bar, uint32_t count)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
#endif
}
/* by the thread that called bar_init: the copy engine knows them from here on */
static __device__ __forceinline__ void bars_ready(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
static __device__ __forceinline__ void bar_arrive(uint32_t bar)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
#endif
}
static __device__ __forceinline__ void bar_expect(uint32_t bar, uint32_t bytes)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
                 : "memory");
#endif
}
static __device__ __forceinline__ void bar_wait(uint32_t bar, uint32_t parity)
{
#if __CUDA_ARCH__ >= 900
    uint32_t done;

    do
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(bar), "r"(parity)
                     : "memory");
    while (!done);
#endif
}
/* asks the copy engine for bytes, whole pieces of sixteen, which it counts at bar */
static __device__ __forceinline__ void bar_copy(uint8_t *to, const uint8_t *from, uint32_t bytes,
                                                uint32_t bar)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
                 "l"(from), "r"(bytes), "r"(bar)
                 : "memory");
#endif
}
static __device__ __forceinline__ void bars_drop(uint32_t bars, uint32_t n)
{
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0)
        for (uint32_t i = 0; i < n; i++)
            asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(bars + 8 * i) : "memory");
#endif
}
