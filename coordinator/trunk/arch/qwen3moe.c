/* olmoe and qwen3moe: attention and routed experts on one residual stream. They differ in the q/k norm
 * and in the router's normalisation, which the model's fields say. */
#include <stdio.h>

#include "coordinator/trunk/arch/arch.h"
#include "coordinator/trunk/blocks/blocks.h"

int arch_qwen3moe(const struct model *m, uint32_t drafts, struct program **out, struct err *e)
{
    struct ops *o = ops_begin(m);
    struct block_buffers b;
    struct feed_buffers feed;
    uint32_t last, logits;
    char prefix[16];

    (void)drafts; /* no NextN block */
    if (!o)
        return err_set(e, -ENOMEM, "no memory for the model's program");
    block_buffers(o, m, &b);
    feed_buffers(o, m, &feed);
    last = ops_buffer(o, m->n_embd, BUF_F32, 1);
    logits = ops_buffer(o, m->n_vocab, BUF_F32, 1);
    ops_rope_table(o, m->n_rot, (double)m->rope_base);

    ops_embed(o, b.x, m->token_embd);
    ops_name(o, "embd");
    for (uint32_t i = 0; i < m->n_layers; i++) {
        uint32_t kv = ops_state(o, m->n_head_kv, m->head_dim);

        ops_rms_norm(o, b.h, b.x, m->layer[i].attn_norm, m->n_embd, 1, m->rms_eps);
        ops_name(o, "L%u.attn_in", i);
        snprintf(prefix, sizeof prefix, "L%u.", i);
        block_attention(o, m, i, prefix, kv, 0, &b);
        ops_add(o, b.x, b.y);
        ops_rms_norm(o, b.h, b.x, m->layer[i].ffn_norm, m->n_embd, 1, m->rms_eps);
        ops_name(o, "L%u.ffn_in", i);
        block_feed(o, m, i, prefix, b.h, b.y, &feed);
        ops_add(o, b.x, b.y);
        ops_name(o, "L%u.resid", i);
    }
    ops_pick(o, last, b.x);
    ops_rms_norm(o, last, last, m->output_norm, m->n_embd, 1, m->rms_eps);
    ops_name(o, "hidden");
    ops_matmul(o, logits, &m->output, last);
    ops_name(o, "logits");
    ops_logits(o, logits);
    return ops_end(o, out, e);
}
