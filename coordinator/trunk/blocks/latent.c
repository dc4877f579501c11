/* Latent attention without rotation, over the pools that an index chooses. (spec: glm5next, MLA) */
#include <math.h>

#include "coordinator/trunk/blocks/blocks.h"

void latent_buffers(struct ops *o, const struct model *m, struct latent_buffers *b)
{
    uint32_t heads = m->n_head, pool = m->latent.pool;

    b->qr = ops_buffer(o, m->latent.q_rank, BUF_F32, 0);
    b->q = ops_buffer(o, heads * m->latent.k, BUF_F32, 0);
    b->c = ops_buffer(o, m->latent.rank, BUF_F32, 0);
    b->absorbed = ops_buffer(o, heads * m->latent.rank, BUF_F32, 0);
    b->z = ops_buffer(o, heads * m->latent.rank, BUF_F32, 0);
    b->o = ops_buffer(o, heads * m->latent.v, BUF_F32, 0);
    b->ik = ops_buffer(o, m->latent.index_size, BUF_F32, 0);
    b->ig = ops_buffer(o, m->latent.index_size, BUF_F32, 0);
    b->iq = ops_buffer(o, m->latent.index_heads * m->latent.index_size, BUF_F32, 0);
    b->iw = ops_buffer(o, m->latent.index_heads, BUF_F32, 0);
    b->list = ops_buffer(o, 1 + m->latent.most * pool + pool, BUF_I32, 0); /* the pools and an open one */
}

/* list = what this position attends to */
static void choose(struct ops *o, const struct model *m, const struct model_latent *a, const char *prefix, uint32_t h,
                   const struct latent_buffers *b)
{
    uint32_t size = m->latent.index_size, heads = m->latent.index_heads;
    uint32_t pools = ops_state_pools(o, size, m->latent.pool);
    uint32_t tail = ops_state_tail(o, 2 * size, m->latent.pool - 1);

    ops_matmul(o, b->ik, &a->index_k, h);
    ops_layer_norm(o, b->ik, b->ik, a->index_norm, a->index_bias, m->latent.norm_eps);
    ops_name(o, "%sidx_key", prefix);
    ops_matmul(o, b->ig, &a->index_gate, h);
    ops_name(o, "%sidx_gate", prefix);
    ops_pool(o, b->ik, b->ig, a->index_ape, pools, tail);
    ops_name(o, "%sidx_pool", prefix);
    ops_matmul(o, b->iq, &a->index_q, b->qr);
    ops_matmul(o, b->iw, &a->index_w, h);
    ops_scale(o, b->iw, (float)(1.0 / sqrt((double)heads)));
    ops_select(o, b->list, b->iq, b->iw, pools, heads, m->latent.most, (float)(1.0 / sqrt((double)size)));
    ops_name(o, "%sidx", prefix);
}

void block_latent(struct ops *o, const struct model *m, uint32_t layer, const char *prefix, uint32_t h, uint32_t y,
                  const struct latent_buffers *b)
{
    const struct model_layer *l = &m->layer[layer];
    const struct model_latent *a = &l->latent;
    uint32_t heads = m->n_head, rank = m->latent.rank, kv = ops_state_latent(o, rank);

    ops_matmul(o, b->qr, &a->q_a, h);
    ops_rms_norm(o, b->qr, b->qr, a->q_norm, m->latent.q_rank, 1, m->rms_eps);
    ops_name(o, "%sq_resid", prefix);
    ops_matmul(o, b->q, &a->q_b, b->qr);
    ops_name_heads(o, heads, "%sq", prefix);
    ops_matmul(o, b->c, &a->kv_a, h);
    ops_rms_norm(o, b->c, b->c, a->kv_norm, rank, 1, m->rms_eps);
    ops_name(o, "%slatent", prefix);
    ops_kv_append(o, kv, b->c, PROG_NONE);
    if (a->own_index)
        choose(o, m, a, prefix, h, b);
    ops_matmul_parts(o, b->absorbed, &a->k_b, b->q, heads);
    ops_name_heads(o, heads, "%sq_absorbed", prefix);
    ops_attention(o, b->z, b->absorbed, b->list, kv, heads, 1, rank, (float)(1.0 / sqrt((double)m->latent.k)));
    ops_name_heads(o, heads, "%sattn_latent", prefix);
    ops_matmul_parts(o, b->o, &a->v_b, b->z, heads);
    ops_name_heads(o, heads, "%sattn_mix", prefix);
    ops_matmul(o, y, &l->attn_output, b->o);
    ops_name(o, "%sattn_out", prefix);
}
