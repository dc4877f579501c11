/* Programmatic launches (sm_90 and later; nothing before): a launch that allows it begins while the one
 * before it in the stream ends. It may fetch what nobody writes, then it waits. */
#pragma once

/* what the launch before in the stream wrote may be read from here on */
static __device__ __forceinline__ void before_is_done(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/* the launch after this one may start to fetch its weights */
static __device__ __forceinline__ void next_may_start(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
