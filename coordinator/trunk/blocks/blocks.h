/* Parts that several architectures share, each a few operations. The buffers belong to the caller. */
#pragma once
#include "coordinator/trunk/ops.h"

/* Work buffers of a layer; made once, used by every layer. */
struct block_buffers {
    uint32_t x;       /* residual (n_embd) */
    uint32_t h;       /* normed (n_embd) */
    uint32_t y;       /* what a block adds (n_embd) */
    uint32_t q, k, v; /* heads */
    uint32_t o;       /* heads' outputs */
    uint32_t logits, probs, ids, weights; /* router */
};
void block_buffers(struct ops *o, const struct model *m, struct block_buffers *b);

/* y = full attention of h with q/k norms and rotation; state: this layer's keys and values.
 * (spec: qwen3moe and olmoe, section "In the engine's arithmetic") */
void block_attention(struct ops *o, const struct model *m, uint32_t layer, uint32_t state,
                     const struct block_buffers *b);
/* y = routed experts of h: softmax router, top-k */
void block_moe(struct ops *o, const struct model *m, uint32_t layer, const struct block_buffers *b);
