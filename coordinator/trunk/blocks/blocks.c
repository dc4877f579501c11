/* Attention as operations. Each function is the model page's list, line by line. */
#include "coordinator/trunk/blocks/blocks.h"

#include <math.h>

/* Of all layers' key lists, its length before it; 0: no layer has one. */
static uint32_t longest_list(const struct model *m)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < m->n_layers; i++) {
        uint32_t pool = m->layer[i].index.pool, n = pool ? 1 + m->index.positions / pool * pool + pool : 0;
        most = n > most ? n : most;
    }
    return most;
}

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
    b->list = PROG_NONE;
    if (m->attn_gated) {
        b->u = ops_buffer(o, 2 * heads, BUF_F32, 0);
        b->gate = ops_buffer(o, heads, BUF_F32, 0);
    }
    if (longest_list(m)) {
        b->iq = ops_buffer(o, m->index.heads * m->index.size, BUF_F32, 0);
        b->ik = ops_buffer(o, m->index.size, BUF_F32, 0);
        b->list = ops_buffer(o, longest_list(m), BUF_I32, 0);
    }
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

/* list = what this position attends to */
static uint32_t choose(struct ops *o, const struct model *m, const struct model_index *x, const char *prefix,
                       const struct block_buffers *b)
{
    uint32_t size = m->index.size, heads = m->index.heads;
    uint32_t pools = ops_state_pools(o, size, x->pool), tail = ops_state_tail(o, size, x->pool - 1);

    ops_matmul(o, b->iq, &x->q, b->h);
    ops_rms_norm(o, b->iq, b->iq, x->q_norm, size, heads, m->rms_eps);
    ops_rope(o, b->iq, heads, size, m->n_rot, 0);
    ops_matmul(o, b->ik, &x->k, b->h);
    ops_pool_mean(o, b->ik, x->k_norm, m->rms_eps, m->n_rot, pools, tail);
    ops_select(o, b->list, b->iq, PROG_NONE, pools, heads, m->index.positions / x->pool,
               (float)(1.0 / sqrt((double)size)));
    ops_name(o, "%sindex", prefix);
    return b->list;
}

void block_attention(struct ops *o, const struct model *m, uint32_t layer, const char *prefix, uint32_t state,
                     uint32_t ahead, const struct block_buffers *b)
{
    const struct model_layer *l = &m->layer[layer];
    uint32_t hd = m->head_dim, list;

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
    list = l->index.pool ? choose(o, m, &l->index, prefix, b) : PROG_NONE;
    /* the scale is a constant made in double (rule 39) */
    ops_attention(o, b->o, b->q, list, state, m->n_head, m->n_head_kv, hd, (float)(1.0 / sqrt((double)hd)));
    if (m->attn_gated)
        ops_mul(o, b->o, b->gate);
    ops_name_heads(o, m->n_head, "%sattn_mix", prefix);
    ops_matmul(o, b->y, &l->attn_output, b->o);
    ops_name(o, "%sattn_out", prefix);
}
