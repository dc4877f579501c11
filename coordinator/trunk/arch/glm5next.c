/* glm5next: delta-rule layers and latent attention on several residual streams, a NextN block on one.
 * Which layer is what, the model's fields say. */
#include <stdio.h>

#include "coordinator/trunk/arch/arch.h"
#include "coordinator/trunk/blocks/blocks.h"

struct buffers {
    struct streams_buffers streams;
    struct delta_buffers delta;
    struct latent_buffers latent;
    struct feed_buffers feed;
    uint32_t x, h, y, hidden;
};

static void trunk_layer(struct ops *o, const struct model *m, uint32_t i, const struct buffers *b)
{
    const struct model_layer *l = &m->layer[i];
    char prefix[16];

    snprintf(prefix, sizeof prefix, "L%u.", i);
    block_streams_in(o, m, i, 0, prefix, &b->streams, b->x);
    ops_rms_norm(o, b->h, b->x, l->attn_norm, m->n_embd, 1, m->rms_eps);
    ops_name(o, "%sattn_in", prefix);
    if (l->mixer == MIX_DELTA)
        block_delta(o, m, i, prefix, b->h, b->y, &b->delta);
    else
        block_latent(o, m, i, prefix, b->h, b->y, &b->latent);
    block_streams_out(o, m, &b->streams, b->y);
    block_streams_in(o, m, i, 1, prefix, &b->streams, b->x);
    ops_rms_norm(o, b->h, b->x, l->ffn_norm, m->n_embd, 1, m->rms_eps);
    ops_name(o, "%sffn_in", prefix);
    block_feed(o, m, i, prefix, b->h, b->y, &b->feed);
    block_streams_out(o, m, &b->streams, b->y);
    ops_name_heads(o, m->streams.n, "%sresid", prefix);
}

/* Row p: the trunk's hidden state of position p and the token after it. */
static void nextn(struct ops *o, const struct model *m, const struct buffers *b)
{
    const struct model_nextn *n = &m->nextn;
    uint32_t i = m->n_layers - 1, d = m->n_embd, pair = ops_buffer(o, 2 * d, BUF_F32, 0);
    uint32_t last = ops_buffer(o, d, BUF_F32, 1), logits = ops_buffer(o, m->n_vocab, BUF_F32, 1);

    ops_draft(o, logits);
    ops_carry(o, b->hidden, last);
    ops_embed(o, b->y, n->embed);
    ops_rms_norm_at(o, pair, 0, b->y, n->e_norm, d, m->rms_eps);
    ops_rms_norm_at(o, pair, d, b->hidden, n->h_norm, d, m->rms_eps);
    ops_matmul(o, b->x, &n->eh, pair);
    ops_name(o, "N.eh");
    ops_rms_norm(o, b->h, b->x, m->layer[i].attn_norm, d, 1, m->rms_eps);
    ops_name(o, "N.attn_in");
    block_latent(o, m, i, "N.", b->h, b->y, &b->latent);
    ops_add(o, b->x, b->y);
    ops_rms_norm(o, b->h, b->x, m->layer[i].ffn_norm, d, 1, m->rms_eps);
    ops_name(o, "N.ffn_in");
    block_feed(o, m, i, "N.", b->h, b->y, &b->feed);
    ops_add(o, b->x, b->y);
    ops_name(o, "N.resid");
    ops_pick(o, last, b->x);
    ops_rms_norm(o, last, last, n->head_norm, d, 1, m->rms_eps);
    ops_name(o, "N.hidden");
    ops_matmul(o, logits, &n->head, last);
    ops_name(o, "N.logits");
}

/* A layer that reads the key list of the one before needs one. */
static int check_lists(const struct model *m, struct err *e)
{
    int there = 0;

    for (uint32_t i = 0; i < m->n_layers; i++) {
        const struct model_layer *l = &m->layer[i];
        if (l->mixer != MIX_LATENT)
            continue;
        there |= l->latent.own_index;
        if (!there || (i == m->n_layers - 1 && m->n_nextn && !l->latent.own_index))
            return err_set(e, -EINVAL, "%s: %s.attention.indexer.types: layer %u has no selection of its own and none "
                                       "before it", m->path, model_arch_name(m), i);
    }
    return 0;
}

int arch_glm5next(const struct model *m, uint32_t drafts, struct program **out, struct err *e)
{
    int rc = check_lists(m, e);
    struct ops *o = rc ? NULL : ops_begin(m);
    uint32_t d = m->n_embd, last, logits;
    struct buffers b;

    if (rc)
        return rc;
    if (!o)
        return err_set(e, -ENOMEM, "no memory for the model's program");
    streams_buffers(o, m, &b.streams);
    delta_buffers(o, m, &b.delta);
    latent_buffers(o, m, &b.latent);
    feed_buffers(o, m, &b.feed);
    b.x = ops_buffer(o, d, BUF_F32, 0);
    b.h = ops_buffer(o, d, BUF_F32, 0);
    b.y = ops_buffer(o, d, BUF_F32, 0);
    b.hidden = ops_buffer(o, d, BUF_F32, 0);
    last = ops_buffer(o, d, BUF_F32, 1);
    logits = ops_buffer(o, m->n_vocab, BUF_F32, 1);

    ops_embed(o, b.x, m->token_embd);
    ops_name(o, "embd");
    ops_repeat(o, b.streams.X, b.x, m->streams.n);
    for (uint32_t i = 0; i < m->n_layers - m->n_nextn; i++)
        trunk_layer(o, m, i, &b);
    ops_hyper_mean(o, b.hidden, b.streams.X, m->streams.n);
    ops_rms_norm(o, b.hidden, b.hidden, m->output_norm, d, 1, m->rms_eps);
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
