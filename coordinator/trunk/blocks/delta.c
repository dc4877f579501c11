/* The delta rule with its short convolutions. (spec: glm5next, KDA) */
#include <math.h>

#include "coordinator/trunk/blocks/blocks.h"

#define L2_EPS 1e-6f /* a constant of the model */

void delta_buffers(struct ops *o, const struct model *m, struct delta_buffers *b)
{
    uint32_t width = m->delta.heads * m->delta.dim;

    b->raw = ops_buffer(o, width, BUF_F32, 0);
    b->q = ops_buffer(o, width, BUF_F32, 0);
    b->k = ops_buffer(o, width, BUF_F32, 0);
    b->v = ops_buffer(o, width, BUF_F32, 0);
    b->low = ops_buffer(o, m->delta.dim, BUF_F32, 0);
    b->decay = ops_buffer(o, width, BUF_F32, 0);
    b->gate = ops_buffer(o, width, BUF_F32, 0);
    b->o = ops_buffer(o, width, BUF_F32, 0);
    b->beta = ops_buffer(o, m->delta.heads, BUF_F32, 0);
}

static void convolved(struct ops *o, const struct model *m, const struct model_weight *w, uint32_t taps, uint32_t h,
                      uint32_t raw, uint32_t out)
{
    uint32_t tail = ops_state_tail(o, m->delta.heads * m->delta.dim, m->delta.taps - 1);

    ops_matmul(o, raw, w, h);
    ops_conv(o, out, raw, taps, m->delta.taps, tail);
}

void block_delta(struct ops *o, const struct model *m, uint32_t layer, const char *prefix, uint32_t h, uint32_t y,
                 const struct delta_buffers *b)
{
    const struct model_layer *l = &m->layer[layer];
    const struct model_delta *d = &l->delta;
    uint32_t H = m->delta.heads, D = m->delta.dim, matrix = ops_state_matrix(o, H, D, D, D);

    convolved(o, m, &l->attn_q, d->conv[0], h, b->raw, b->q);
    convolved(o, m, &l->attn_k, d->conv[1], h, b->raw, b->k);
    convolved(o, m, &l->attn_v, d->conv[2], h, b->raw, b->v);
    ops_name_heads(o, H, "%skda_v", prefix);
    ops_l2_norm(o, b->q, b->q, D, H, L2_EPS, (float)(1.0 / sqrt((double)D)));
    ops_name_heads(o, H, "%skda_q", prefix);
    ops_l2_norm(o, b->k, b->k, D, H, L2_EPS, 1);
    ops_name_heads(o, H, "%skda_k", prefix);
    ops_matmul(o, b->low, &d->decay[0], h);
    ops_matmul(o, b->decay, &d->decay[1], b->low);
    ops_decay(o, b->decay, b->decay, d->a, d->dt, H, m->delta.bounded, m->delta.bound);
    ops_name_heads(o, H, "%skda_decay", prefix);
    ops_matmul(o, b->beta, &d->beta, h);
    ops_func(o, b->beta, b->beta, FUNC_SIGMOID);
    ops_name(o, "%skda_beta", prefix);
    ops_delta(o, b->o, b->q, b->k, b->v, b->decay, b->beta, matrix);
    ops_name_heads(o, H, "%skda_scan", prefix);
    ops_matmul(o, b->low, &d->gate[0], h);
    ops_matmul(o, b->gate, &d->gate[1], b->low);
    ops_func(o, b->gate, b->gate, FUNC_SIGMOID);
    ops_gated_norm(o, b->o, b->o, b->gate, d->norm, D, H, m->rms_eps);
    ops_name_heads(o, H, "%sattn_mix", prefix);
    ops_matmul(o, y, &l->attn_output, b->o);
    ops_name(o, "%sattn_out", prefix);
}
