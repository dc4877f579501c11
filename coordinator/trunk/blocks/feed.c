/* Feed-forward parts: dense, routed experts, shared expert. */
#include "coordinator/trunk/blocks/blocks.h"

static void pair(struct ops *o, uint32_t width, uint32_t *buf)
{
    for (int i = 0; width && i < 2; i++)
        buf[i] = ops_buffer(o, width, BUF_F32, 0);
}

void feed_buffers(struct ops *o, const struct model *m, struct feed_buffers *b)
{
    uint32_t dense = 0, shared = 0;

    for (uint32_t i = 0; i < m->n_layers; i++) {
        dense = m->layer[i].dense.n ? m->layer[i].dense.n : dense;
        shared = m->layer[i].shared.n ? m->layer[i].shared.n : shared;
    }
    *b = (struct feed_buffers){.logits = ops_buffer(o, m->n_experts, BUF_F32, 0),
                               .probs = ops_buffer(o, m->n_experts, BUF_F32, 0),
                               .ids = ops_buffer(o, m->top_k, BUF_I32, 0),
                               .weights = ops_buffer(o, m->top_k, BUF_F32, 0)};
    pair(o, dense, b->dense);
    pair(o, shared, b->shared);
    if (shared)
        b->z = ops_buffer(o, m->n_embd, BUF_F32, 0);
    if (shared)
        b->f = ops_buffer(o, 1, BUF_F32, 0);
}

/* out = down(silu(gate h) * up h), clamped */
static void mlp(struct ops *o, const struct model_mlp *p, float limit, uint32_t h, const uint32_t *buf, uint32_t out)
{
    ops_matmul(o, buf[0], &p->gate, h);
    ops_matmul(o, buf[1], &p->up, h);
    ops_swiglu(o, buf[0], buf[0], buf[1], limit);
    ops_matmul(o, out, &p->down, buf[0]);
}

/* The shared expert is computed while the workers compute the routed ones. */
static void experts(struct ops *o, const struct model *m, uint32_t layer, const char *prefix, uint32_t h, uint32_t y,
                    const struct feed_buffers *b)
{
    const struct model_layer *l = &m->layer[layer];
    uint32_t flags = (m->router_normalise ? ROUTER_NORMALISE : 0) | (m->router_sigmoid ? ROUTER_SIGMOID : 0);

    ops_matmul(o, b->logits, &l->ffn_gate_inp, h);
    ops_name(o, "%srouter_logits", prefix);
    ops_router(o, b->probs, b->ids, b->weights, b->logits, l->router_bias, l->n_experts, m->top_k, flags,
               m->router_floor, m->router_scale);
    ops_name(o, "%srouter", prefix);
    ops_moe_call(o, h, b->ids, layer, m->top_k);
    if (l->shared.n) {
        mlp(o, &l->shared, l->shared_limit, h, b->shared, b->z);
        ops_name(o, "%sshared_out", prefix);
        if (l->shared_gate.w != MODEL_NONE) {
            ops_matmul(o, b->f, &l->shared_gate, h);
            ops_func(o, b->f, b->f, FUNC_SIGMOID);
        }
    }
    ops_moe_sum(o, y, b->weights);
    if (l->shared.n) {
        ops_name(o, "%srouted_out", prefix);
        if (l->shared_gate.w != MODEL_NONE)
            ops_add_times(o, y, b->z, b->f);
        else
            ops_add(o, y, b->z);
    }
    ops_name(o, "%sffn_out", prefix);
}

void block_feed(struct ops *o, const struct model *m, uint32_t layer, const char *prefix, uint32_t h, uint32_t y,
                const struct feed_buffers *b)
{
    const struct model_layer *l = &m->layer[layer];

    if (l->n_experts) {
        experts(o, m, layer, prefix, h, y, b);
        return;
    }
    mlp(o, &l->dense, l->shared_limit, h, b->dense, y);
    ops_name(o, "%sffn_out", prefix);
}
