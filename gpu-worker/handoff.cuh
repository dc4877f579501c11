/* Words between a kernel and others: a process on the host, or a kernel on another card (DESIGN.md
 * section 3, "Cards"). The word and what it announces lie in mapped host memory, or in a card's memory
 * that others reach. The receiver on the host loads the word with acquire and stores its answer with
 * release.
 *
 *   what               by                     order
 *   payload            every thread           plain stores, then handoff_publish by the whole block
 *   word               the last block that    st.release.sys after a system fence of its own; each block
 *                      arrives                fenced its part before it arrived
 *   payload, received  every thread           after handoff_wait: handoff_load (ld.relaxed.sys), never a
 *                                             plain or __ldg load: a line in L1 may be older than the word
 *
 * One block of a card polls a mapped word: loads of one line of host memory are answered one after another, some
 * 2.5 us each, so that of 128 blocks the last one sees the word 320 us after the first (handoff_test). The others look
 * at a word of this card's memory, which that block stores (handoff_wait_by_one).
 *
 * No programmatic dependent launch between a node that waits and one that loads: a later node of the
 * same stream may load with handoff_load what an earlier one waited for. */
#pragma once
#include <stdint.h>

static __device__ __forceinline__ uint64_t handoff_word(const uint64_t *p)
{
    uint64_t v;

    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
static __device__ __forceinline__ void handoff_store(uint64_t *p, uint64_t v)
{
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

static __device__ __forceinline__ float handoff_load(const float *p)
{
    float v;

    asm volatile("ld.relaxed.sys.global.f32 %0, [%1];" : "=f"(v) : "l"(p) : "memory");
    return v;
}
static __device__ __forceinline__ uint64_t handoff_load(const uint64_t *p)
{
    uint64_t v;

    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}

/* two words, 16-byte aligned: half as many requests on the link */
static __device__ __forceinline__ ulonglong2 handoff_load2(const uint64_t *p)
{
    ulonglong2 v;

    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(v.x), "=l"(v.y)
                 : "l"(p)
                 : "memory");
    return v;
}

/* By all threads of all `blocks` blocks, each after its last store of the payload. *arrived: device
 * memory, of this publication alone until it is out; 0 before and again after. Returns true in the
 * one thread that stored the word. */
static __device__ __forceinline__ bool handoff_publish(uint64_t *word, uint64_t value,
                                                       unsigned *arrived, unsigned blocks)
{
    __syncthreads();
    if (threadIdx.x || threadIdx.y || threadIdx.z)
        return false;
    __threadfence_system();
    if (atomicAdd(arrived, 1) + 1 < blocks)
        return false;
    *arrived = 0;
    __threadfence_system();
    handoff_store(word, value);
    return true;
}
/* The same with one fence for the system, the last block's, which covers what the others had stored: each fenced for
 * this card, then arrived. The visibility test's; the trunk's and the experts' kernels have the one above. */
static __device__ __forceinline__ bool handoff_publish_by_last(uint64_t *word, uint64_t value, unsigned *arrived,
                                                               unsigned blocks)
{
    __syncthreads();
    if (threadIdx.x || threadIdx.y || threadIdx.z)
        return false;
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    if (atomicAdd(arrived, 1) + 1 < blocks)
        return false;
    *arrived = 0;
    asm volatile("fence.acq_rel.sys;" ::: "memory");
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
    return true;
}

/* words of this card's memory, between its blocks */
static __device__ __forceinline__ uint64_t handoff_near(const uint64_t *p)
{
    uint64_t v;

    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
static __device__ __forceinline__ void handoff_store_near(uint64_t *p, uint64_t v)
{
    asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

enum handoff_end {
    HANDOFF_THERE, /* the word is at least what was wanted */
    HANDOFF_STOP,  /* whoever watches gave up: *stop is not 0 */
    HANDOFF_LATE,  /* limit_ns are over */
};

static __device__ __forceinline__ uint64_t handoff_now(void)
{
    uint64_t t;

    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}

/* By all threads of a block, before its first load of the payload. The deadline: *stop, a word that
 * the host sets, is looked at every 64 polls; limit_ns is the card's own bound, by its clock, 0:
 * none. */
static __device__ __forceinline__ handoff_end handoff_wait(const uint64_t *word, uint64_t value,
                                                           const uint64_t *stop, uint64_t limit_ns)
{
    __shared__ int end;

    if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
        uint64_t start = limit_ns ? handoff_now() : 0;
        int how = HANDOFF_THERE;

        for (unsigned polls = 1; handoff_word(word) < value; polls++) {
            if (polls % 64)
                continue;
            if (handoff_word(stop))
                how = HANDOFF_STOP;
            else if (limit_ns && handoff_now() - start > limit_ns)
                how = HANDOFF_LATE;
            if (how)
                break;
        }
        end = how;
    }
    __syncthreads();
    int how = end;
    __syncthreads(); /* `end` is free for the next wait */
    return (handoff_end)how;
}

/* The same for all blocks of a grid, which are on the card together: block (0, 0) looks at *word, the others at *near,
 * device memory, where it passes on what it saw: value, or HANDOFF_NEVER - end. Values grow. */
#define HANDOFF_NEVER UINT64_MAX
static __device__ __forceinline__ handoff_end handoff_wait_by_one(const uint64_t *word, uint64_t *near, uint64_t value,
                                                                  const uint64_t *stop, uint64_t limit_ns)
{
    __shared__ int end;

    if (blockIdx.x == 0 && blockIdx.y == 0) {
        handoff_end how = handoff_wait(word, value, stop, limit_ns);
        if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0)
            handoff_store_near(near, how == HANDOFF_THERE ? value : HANDOFF_NEVER - how);
        return how;
    }
    if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
        uint64_t v;
        while ((v = handoff_near(near)) < value)
            ;
        end = v > HANDOFF_NEVER - 8 ? (int)(HANDOFF_NEVER - v) : HANDOFF_THERE;
    }
    __syncthreads();
    int how = end;
    __syncthreads();
    return (handoff_end)how;
}
