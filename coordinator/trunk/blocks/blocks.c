/* Attention as operations. Each function is the model page's list, line by line. */
#include "coordinator/trunk/blocks/blocks.h"

#include <math.h>

void block_buffers(struct ops *o, const struct model *m, struct block_buffers *b)
{
    b->x = ops_buffer(o, m->n_embd, BUF_F32, 0);
    b->h = ops_buffer(o, m->n_embd, BUF_F32, 0);
    b->y = ops_buffer(o, m->n_embd, BUF_F32, 0);
    b->q = ops_buffer(o, m->n_head * m->head_dim, BUF_F32, 0);
    b->k = ops_buffer(o, m->n_head_kv * m->head_dim, BUF_F32, 0);
    b->v = ops_buffer(o, m->n_head_kv * m->head_dim, BUF_F32, 0);
    b->o = ops_buffer(o, m->n_head * m->head_dim, BUF_F32, 0);
}

void block_attention(struct ops *o, const struct model *m, uint32_t layer, uint32_t state,
                     const struct block_buffers *b)
{
    const struct model_layer *l = &m->layer[layer];
    uint32_t hd = m->head_dim;

    ops_matmul(o, b->q, &l->attn_q, b->h);
    ops_matmul(o, b->k, &l->attn_k, b->h);
    ops_matmul(o, b->v, &l->attn_v, b->h);
    if (m->qk_norm_whole) {
        ops_rms_norm(o, b->q, b->q, l->attn_q_norm, m->n_head * hd, 1, m->rms_eps);
        ops_rms_norm(o, b->k, b->k, l->attn_k_norm, m->n_head_kv * hd, 1, m->rms_eps);
    } else {
        ops_rms_norm(o, b->q, b->q, l->attn_q_norm, hd, m->n_head, m->rms_eps);
        ops_rms_norm(o, b->k, b->k, l->attn_k_norm, hd, m->n_head_kv, m->rms_eps);
    }
    ops_rope(o, b->q, m->n_head, hd, m->n_rot);
    ops_name(o, "L%u.q", layer);
    ops_rope(o, b->k, m->n_head_kv, hd, m->n_rot);
    ops_kv_append(o, state, b->k, b->v);
    /* the scale is a constant made in double (rule 39) */
    ops_attention(o, b->o, b->q, PROG_NONE, state, m->n_head, m->n_head_kv, hd, (float)(1.0 / sqrt((double)hd)));
    ops_name(o, "L%u.attn_mix", layer);
    ops_matmul(o, b->y, &l->attn_output, b->o);
    ops_name(o, "L%u.attn_out", layer);
}
