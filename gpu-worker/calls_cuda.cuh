/* What the first and the last node of a step do for the calls (gpu-worker/calls_cuda.h): by one block, whose
 * kernel does other things as well. */
#pragma once
#include "gpu-worker/calls_cuda.h"

struct calls_cuda_change {
    uint32_t at, slot; /* layer * n_experts + expert; 0: not here, else 1 + its slot's offset / SLOT_ALIGN */
};
/* own NULL: a trunk without calls */
struct calls_cuda_words {
    const uint64_t *n_changes;             /* mapped */
    const struct calls_cuda_change *change; /* mapped */
    uint32_t *own;
    const uint32_t *chosen; /* by layer, choice_layer words each */
    uint32_t *choice;       /* mapped, as chosen */
    uint64_t choice_layer;
    uint32_t n_layers, top_k;
    const uint64_t *count; /* struct calls_cuda_counters */
    uint64_t *counted;     /* mapped */
};
struct calls_cuda_words calls_cuda_words(const struct calls_cuda *x);

/* The own table's changes. */
static __device__ __forceinline__ void calls_cuda_take(const struct calls_cuda_words &w)
{
    const volatile struct calls_cuda_change *c = w.change;

    if (!w.own)
        return;
    for (uint64_t k = threadIdx.x, n = *(const volatile uint64_t *)w.n_changes; k < n; k += blockDim.x)
        w.own[c[k].at] = c[k].slot;
}
/* The choice of every layer, and the counters. */
static __device__ __forceinline__ void calls_cuda_give(const struct calls_cuda_words &w, uint32_t n_tokens)
{
    uint32_t pairs = n_tokens * w.top_k;

    for (uint32_t i = threadIdx.x; w.own && i < w.n_layers * pairs; i += blockDim.x) {
        size_t at = i / pairs * w.choice_layer + i % pairs;
        w.choice[at] = w.chosen[at];
    }
    if (w.own && threadIdx.x < sizeof(struct calls_cuda_counters) / 8)
        w.counted[threadIdx.x] = w.count[threadIdx.x];
}
