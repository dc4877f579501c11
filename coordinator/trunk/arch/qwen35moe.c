/* qwen35moe: delta net and gated attention on one residual, routed experts beside a gated shared one, a
 * NextN block of gated attention. */
#include <stdio.h>

#include "coordinator/trunk/arch/arch.h"
#include "coordinator/trunk/blocks/blocks.h"

struct buffers {
    struct block_buffers b;
    struct delta_buffers delta;
    struct feed_buffers feed;
    uint32_t hidden;
};

/* One layer on the residual b->b.x. */
static void layer(struct ops *o, const struct model *m, uint32_t i, const char *prefix, uint32_t ahead,
                  const struct buffers *b)
{
    const struct model_layer *l = &m->layer[i];

    ops_rms_norm(o, b->b.h, b->b.x, l->attn_norm, m->n_embd, 1, m->rms_eps);
    ops_name(o, "%sattn_in", prefix);
    if (l->mixer == MIX_DELTA)
        block_delta(o, m, i, prefix, b->b.h, b->b.y, &b->delta);
    else
        block_attention(o, m, i, prefix, ops_state(o, m->n_head_kv, m->head_dim), ahead, &b->b);
    ops_add(o, b->b.x, b->b.y);
    ops_rms_norm(o, b->b.h, b->b.x, l->ffn_norm, m->n_embd, 1, m->rms_eps);
    ops_name(o, "%sffn_in", prefix);
    block_feed(o, m, i, prefix, b->b.h, b->b.y, &b->feed);
    ops_add(o, b->b.x, b->b.y);
    ops_name(o, "%sresid", prefix);
}

/* Row r: the trunk's hidden state of position r and the token after it, rotated as that one's position. */
static void nextn(struct ops *o, const struct model *m, const struct buffers *b)
{
    const struct model_nextn *n = &m->nextn;
    uint32_t d = m->n_embd, pair = ops_buffer(o, 2 * d, BUF_F32, 0);
    uint32_t last = ops_buffer(o, d, BUF_F32, 1), logits = ops_buffer(o, m->n_vocab, BUF_F32, 1);

    ops_draft(o, logits);
    ops_carry(o, b->hidden, last);
    ops_embed(o, b->b.y, n->embed);
    ops_rms_norm_at(o, pair, 0, b->b.y, n->e_norm, d, m->rms_eps);
    ops_rms_norm_at(o, pair, d, b->hidden, n->h_norm, d, m->rms_eps);
    ops_matmul(o, b->b.x, &n->eh, pair);
    ops_name(o, "N.eh");
    layer(o, m, m->n_layers - 1, "N.", 1, b);
    ops_pick(o, last, b->b.x);
    ops_rms_norm(o, last, last, n->head_norm, d, 1, m->rms_eps);
    ops_name(o, "N.hidden");
    ops_matmul(o, logits, &n->head, last);
    ops_name(o, "N.logits");
}

int arch_qwen35moe(const struct model *m, uint32_t drafts, struct program **out, struct err *e)
{
    struct ops *o = ops_begin(m);
    uint32_t last, logits;
    struct buffers b;
    char prefix[16];

    if (!o)
        return err_set(e, -ENOMEM, "no memory for the model's program");
    block_buffers(o, m, &b.b);
    delta_buffers(o, m, &b.delta);
    feed_buffers(o, m, &b.feed);
    b.hidden = ops_buffer(o, m->n_embd, BUF_F32, 0);
    last = ops_buffer(o, m->n_embd, BUF_F32, 1);
    logits = ops_buffer(o, m->n_vocab, BUF_F32, 1);
    ops_rope_table(o, m->n_rot, (double)m->rope_base);

    ops_embed(o, b.b.x, m->token_embd);
    ops_name(o, "embd");
    for (uint32_t i = 0; i < m->n_layers - m->n_nextn; i++) {
        snprintf(prefix, sizeof prefix, "L%u.", i);
        layer(o, m, i, prefix, 0, &b);
    }
    ops_rms_norm(o, b.hidden, b.b.x, m->output_norm, m->n_embd, 1, m->rms_eps);
    ops_pick(o, last, b.hidden);
    ops_name(o, "hidden");
    ops_matmul(o, logits, &m->output, last);
    ops_name(o, "logits");
    ops_logits(o, logits);
    if (drafts && m->n_nextn) {
        ops_rollback(o, drafts);
        nextn(o, m, &b);
    }
    return ops_end(o, out, e);
}
