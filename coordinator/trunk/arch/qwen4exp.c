/* qwen4exp: delta net and gated attention over selected blocks, between streams that gates of low rank mix; one
 * layer takes in rows of an n-gram table. No draft block: nothing defines yet what it computes. */
#include <stdio.h>

#include "coordinator/trunk/arch/arch.h"
#include "coordinator/trunk/blocks/blocks.h"

struct buffers {
    struct block_buffers b;
    struct branch_buffers branch;
    struct delta_buffers delta;
    struct feed_buffers feed;
};

static void layer(struct ops *o, const struct model *m, uint32_t i, const struct buffers *b)
{
    const struct model_layer *l = &m->layer[i];
    char prefix[16];

    snprintf(prefix, sizeof prefix, "L%u.", i);
    if (i == m->ngram.layer)
        block_ngram(o, m, prefix, &b->branch);
    block_branch_in(o, m, i, 0, prefix, &b->branch, b->b.h);
    if (l->mixer == MIX_DELTA)
        block_delta(o, m, i, prefix, b->b.h, b->b.y, &b->delta);
    else
        block_attention(o, m, i, prefix, ops_state(o, m->n_head_kv, m->head_dim), 0, &b->b);
    block_branch_out(o, m, &b->branch, b->b.y);
    block_branch_in(o, m, i, 1, prefix, &b->branch, b->b.h);
    block_feed(o, m, i, prefix, b->b.h, b->b.y, &b->feed);
    block_branch_out(o, m, &b->branch, b->b.y);
    ops_name_heads(o, m->streams.n, "%sresid", prefix);
}

int arch_qwen4exp(const struct model *m, uint32_t drafts, struct program **out, struct err *e)
{
    struct ops *o = ops_begin(m);
    uint32_t last, logits;
    struct buffers b;

    (void)drafts; /* the reader says that there is no block */
    if (!o)
        return err_set(e, -ENOMEM, "no memory for the model's program");
    block_buffers(o, m, &b.b);
    branch_buffers(o, m, &b.branch);
    delta_buffers(o, m, &b.delta);
    feed_buffers(o, m, &b.feed);
    last = ops_buffer(o, m->n_embd, BUF_F32, 1);
    logits = ops_buffer(o, m->n_vocab, BUF_F32, 1);
    ops_rope_table(o, m->n_rot, (double)m->rope_base);

    ops_embed(o, b.b.x, m->token_embd);
    ops_name(o, "embd");
    ops_repeat(o, b.branch.X, b.b.x, m->streams.n);
    for (uint32_t i = 0; i < m->n_layers; i++)
        layer(o, m, i, &b);
    block_branch_in(o, m, MODEL_NONE, 0, "", &b.branch, b.b.h);
    ops_pick(o, last, b.b.h);
    ops_name(o, "hidden");
    ops_matmul(o, logits, &m->output, last);
    ops_name(o, "logits");
    ops_logits(o, logits);
    return ops_end(o, out, e);
}
