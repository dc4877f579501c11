/* A layer's choice of experts as work for the fused expert, made on the card. */
#pragma once
#include <stdint.h>

#include "kernels/stream.h"

CUDA_BEGIN
#include "kernels/expert/expert_cuda.h"

/* items (n_tokens * k at most) and *n_items from ids (n_tokens, k), numbers of n_experts, all in
 * device memory: experts ascending, the tokens of each ascending, at most EXPERT_TOKENS in an item.
 * slot = the expert's number, tok = t, row = t * k + p. One token: places in their order. */
void moe_items_cuda(const uint32_t *ids, unsigned k, unsigned n_tokens, unsigned n_experts,
                    struct expert_item *items, uint32_t *n_items, cudaStream_t s);
CUDA_END
