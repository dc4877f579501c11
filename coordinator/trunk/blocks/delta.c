/* The delta rule with its short convolutions. (spec: glm5next, KDA; qwen35moe, delta net) */
#include <math.h>

#include "coordinator/trunk/blocks/blocks.h"

#define L2_EPS 1e-6f /* a constant of KDA */

void delta_buffers(struct ops *o, const struct model *m, struct delta_buffers *b)
{
    uint32_t width = m->delta.heads * m->delta.dim, keys = m->delta.k_heads * m->delta.dim;
    uint32_t raw = m->delta.by_head ? 2 * keys + width : width;

    *b = (struct delta_buffers){.raw = ops_buffer(o, raw, BUF_F32, 0),
                                .q = ops_buffer(o, keys, BUF_F32, 0),
                                .k = ops_buffer(o, keys, BUF_F32, 0),
                                .v = ops_buffer(o, width, BUF_F32, 0),
                                .decay = ops_buffer(o, m->delta.by_head ? m->delta.heads : width, BUF_F32, 0),
                                .gate = ops_buffer(o, width, BUF_F32, 0),
                                .o = ops_buffer(o, width, BUF_F32, 0),
                                .beta = ops_buffer(o, m->delta.heads, BUF_F32, 0)};
    if (m->delta.by_head)
        b->all = ops_buffer(o, raw, BUF_F32, 0);
    else
        b->low = ops_buffer(o, m->delta.dim, BUF_F32, 0);
}

static void convolved(struct ops *o, const struct model *m, const struct model_weight *w, uint32_t taps, uint32_t h,
                      uint32_t raw, uint32_t width, uint32_t out)
{
    uint32_t tail = ops_state_tail(o, width, m->delta.taps - 1);

    ops_matmul(o, raw, w, h);
    ops_conv(o, out, raw, taps, m->delta.taps, 1, tail);
}

/* Queries and keys, L2-normed, and values. */
static void heads_of_layer(struct ops *o, const struct model *m, const struct model_layer *l, const char *prefix,
                           uint32_t h, const struct delta_buffers *b)
{
    const struct model_delta *d = &l->delta;
    uint32_t D = m->delta.dim, keys = m->delta.k_heads * D, width = m->delta.heads * D, all = 2 * keys + width;
    float eps = m->delta.by_head ? m->rms_eps : L2_EPS;

    if (m->delta.by_head) {
        convolved(o, m, &d->qkv, d->conv[0], h, b->raw, all, b->all);
        ops_name(o, "%sconv", prefix);
        ops_slice(o, b->q, b->all, 1, keys, 0, all);
        ops_slice(o, b->k, b->all, 1, keys, keys, all);
        ops_slice(o, b->v, b->all, 1, width, 2 * keys, all);
    } else {
        convolved(o, m, &l->attn_q, d->conv[0], h, b->raw, width, b->q);
        convolved(o, m, &l->attn_k, d->conv[1], h, b->raw, width, b->k);
        convolved(o, m, &l->attn_v, d->conv[2], h, b->raw, width, b->v);
        ops_name_heads(o, m->delta.heads, "%skda_v", prefix);
    }
    ops_l2_norm(o, b->q, b->q, D, m->delta.k_heads, eps, (float)(1.0 / sqrt((double)D)));
    if (!m->delta.by_head)
        ops_name_heads(o, m->delta.heads, "%skda_q", prefix);
    ops_l2_norm(o, b->k, b->k, D, m->delta.k_heads, eps, 1);
    if (!m->delta.by_head)
        ops_name_heads(o, m->delta.heads, "%skda_k", prefix);
}

/* What the state is multiplied by, and how strongly it is written. */
static void strengths(struct ops *o, const struct model *m, const struct model_delta *d, const char *prefix, uint32_t h,
                      const struct delta_buffers *b)
{
    uint32_t H = m->delta.heads;

    if (m->delta.by_head) {
        ops_matmul(o, b->decay, &d->decay[0], h);
    } else {
        ops_matmul(o, b->low, &d->decay[0], h);
        ops_matmul(o, b->decay, &d->decay[1], b->low);
    }
    ops_decay(o, b->decay, b->decay, d->a, d->dt, H, m->delta.bounded, m->delta.bound);
    if (!m->delta.by_head)
        ops_name_heads(o, H, "%skda_decay", prefix);
    ops_func(o, b->decay, b->decay, FUNC_EXP);
    if (m->delta.by_head)
        ops_name(o, "%sdecay", prefix);
    ops_matmul(o, b->beta, &d->beta, h);
    ops_func(o, b->beta, b->beta, FUNC_SIGMOID);
    ops_name(o, m->delta.by_head ? "%sbeta" : "%skda_beta", prefix);
}

void block_delta(struct ops *o, const struct model *m, uint32_t layer, const char *prefix, uint32_t h, uint32_t y,
                 const struct delta_buffers *b)
{
    const struct model_layer *l = &m->layer[layer];
    const struct model_delta *d = &l->delta;
    uint32_t H = m->delta.heads, D = m->delta.dim;
    uint32_t matrix = ops_state_matrix(o, H, m->delta.k_heads, D, D, m->delta.by_head ? 1 : D);

    heads_of_layer(o, m, l, prefix, h, b);
    strengths(o, m, d, prefix, h, b);
    ops_delta(o, b->o, b->q, b->k, b->v, b->decay, b->beta, matrix);
    ops_name_heads(o, H, m->delta.by_head ? "%sscan" : "%skda_scan", prefix);
    if (m->delta.by_head) {
        ops_matmul(o, b->gate, &d->gate[0], h);
    } else {
        ops_matmul(o, b->low, &d->gate[0], h);
        ops_matmul(o, b->gate, &d->gate[1], b->low);
    }
    ops_func(o, b->gate, b->gate, m->delta.by_head && !m->delta.gate_sigmoid ? FUNC_SILU : FUNC_SIGMOID);
    ops_gated_norm(o, b->o, b->o, b->gate, d->norm, D, H, m->rms_eps);
    ops_name_heads(o, H, "%sattn_mix", prefix);
    ops_matmul(o, y, &l->attn_output, b->o);
    ops_name(o, "%sattn_out", prefix);
}
