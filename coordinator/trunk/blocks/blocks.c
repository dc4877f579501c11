/* Attention as operations. Each function is the model page's list, line by line. */
#include "coordinator/trunk/blocks/blocks.h"

#include <math.h>

void block_buffers(struct ops *o, const struct model *m, struct block_buffers *b)
{
    uint32_t heads = m->n_head * m->head_dim;

    *b = (struct block_buffers){.x = ops_buffer(o, m->n_embd, BUF_F32, 0),
                                .h = ops_buffer(o, m->n_embd, BUF_F32, 0),
                                .y = ops_buffer(o, m->n_embd, BUF_F32, 0),
                                .q = ops_buffer(o, heads, BUF_F32, 0),
                                .k = ops_buffer(o, m->n_head_kv * m->head_dim, BUF_F32, 0),
                                .v = ops_buffer(o, m->n_head_kv * m->head_dim, BUF_F32, 0),
                                .o = ops_buffer(o, heads, BUF_F32, 0)};
    if (!m->attn_gated)
        return;
    b->u = ops_buffer(o, 2 * heads, BUF_F32, 0);
    b->gate = ops_buffer(o, heads, BUF_F32, 0);
}

static void queries(struct ops *o, const struct model *m, const struct model_layer *l, const struct block_buffers *b)
{
    uint32_t hd = m->head_dim;

    if (!m->attn_gated) {
        ops_matmul(o, b->q, &l->attn_q, b->h);
        return;
    }
    ops_matmul(o, b->u, &l->attn_q, b->h);
    ops_slice(o, b->q, b->u, m->n_head, hd, 0, 2 * hd);
    ops_slice(o, b->gate, b->u, m->n_head, hd, hd, 2 * hd);
    ops_func(o, b->gate, b->gate, FUNC_SIGMOID);
}

void block_attention(struct ops *o, const struct model *m, uint32_t layer, const char *prefix, uint32_t state,
                     uint32_t ahead, const struct block_buffers *b)
{
    const struct model_layer *l = &m->layer[layer];
    uint32_t hd = m->head_dim;

    queries(o, m, l, b);
    ops_matmul(o, b->k, &l->attn_k, b->h);
    ops_matmul(o, b->v, &l->attn_v, b->h);
    if (m->qk_norm_whole) {
        ops_rms_norm(o, b->q, b->q, l->attn_q_norm, m->n_head * hd, 1, m->rms_eps);
        ops_rms_norm(o, b->k, b->k, l->attn_k_norm, m->n_head_kv * hd, 1, m->rms_eps);
    } else {
        ops_rms_norm(o, b->q, b->q, l->attn_q_norm, hd, m->n_head, m->rms_eps);
        ops_rms_norm(o, b->k, b->k, l->attn_k_norm, hd, m->n_head_kv, m->rms_eps);
    }
    ops_rope(o, b->q, m->n_head, hd, m->n_rot, ahead);
    ops_name_heads(o, m->n_head, "%sq", prefix);
    ops_rope(o, b->k, m->n_head_kv, hd, m->n_rot, ahead);
    ops_kv_append(o, state, b->k, b->v);
    /* the scale is a constant made in double (rule 39) */
    ops_attention(o, b->o, b->q, PROG_NONE, state, m->n_head, m->n_head_kv, hd, (float)(1.0 / sqrt((double)hd)));
    if (m->attn_gated)
        ops_mul(o, b->o, b->gate);
    ops_name_heads(o, m->n_head, "%sattn_mix", prefix);
    ops_matmul(o, b->y, &l->attn_output, b->o);
    ops_name(o, "%sattn_out", prefix);
}
