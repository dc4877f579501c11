/* Residual streams that gates of low rank mix, and the n-gram rows that one layer's streams take in.
 * (spec: qwen4exp, "Hyper-connections", "Hashed n-gram embedding") */
#include <math.h>

#include "coordinator/trunk/blocks/blocks.h"

void branch_buffers(struct ops *o, const struct model *m, struct branch_buffers *b)
{
    uint32_t n = m->streams.n, d = m->n_embd;

    *b = (struct branch_buffers){.X = ops_buffer(o, n * d, BUF_F32, 0),
                                 .n = ops_buffer(o, n * d, BUF_F32, 0),
                                 .low = ops_buffer(o, m->streams.rank, BUF_F32, 0),
                                 .g = ops_buffer(o, n * d, BUF_F32, 0),
                                 .v = ops_buffer(o, n, BUF_F32, 0),
                                 .e = ops_buffer(o, d, BUF_F32, 0),
                                 .k = ops_buffer(o, n * d, BUF_F32, 0),
                                 .value = ops_buffer(o, d, BUF_F32, 0),
                                 .u = ops_buffer(o, n * d, BUF_F32, 0),
                                 .q = ops_buffer(o, n * d, BUF_F32, 0)};
}

void block_branch_in(struct ops *o, const struct model *m, uint32_t layer, int part, const char *prefix,
                     const struct branch_buffers *b, uint32_t x)
{
    const struct model_streams *s = layer == MODEL_NONE ? &m->output_streams : &m->layer[layer].streams[part];
    uint32_t n = m->streams.n;

    ops_rms_norm_each(o, b->n, b->X, s->norm, m->n_embd, n, m->rms_eps);
    ops_matmul(o, b->low, &s->down, b->n);
    ops_divide(o, b->low, (float)n);
    ops_func(o, b->low, b->low, FUNC_SILU);
    ops_matmul(o, b->g, &s->up, b->low);
    ops_func(o, b->g, b->g, FUNC_SIGMOID);
    ops_branch_mean(o, x, b->g, b->n, n);
    if (s->inject.w == MODEL_NONE)
        return;
    ops_name(o, "%s%s_in", prefix, part ? "ffn" : "attn");
    ops_matmul(o, b->v, &s->inject, b->n);
    ops_divide(o, b->v, (float)n);
    ops_func(o, b->v, b->v, FUNC_SIGMOID);
    ops_scale(o, b->v, 2);
    ops_name(o, "%shc_%s_inject", prefix, part ? "ffn" : "attn");
}

void block_branch_out(struct ops *o, const struct model *m, const struct branch_buffers *b, uint32_t y)
{
    ops_add_times_each(o, b->X, y, b->v, m->streams.n);
}

void block_ngram(struct ops *o, const struct model *m, const char *prefix, const struct branch_buffers *b)
{
    const struct model_ngram *g = &m->ngram;
    uint32_t n = m->streams.n, d = m->n_embd, tail = ops_state_tail(o, n * d, (g->taps - 1) * g->size);

    ops_rows(o, b->e, g->table, g->heads);
    ops_name(o, "%sple_rows", prefix);
    ops_matmul(o, b->k, &g->key, b->e);
    ops_rms_norm_each(o, b->k, b->k, g->norm_key, d, n, m->rms_eps);
    ops_matmul(o, b->value, &g->value, b->e);
    ops_rms_norm_each(o, b->n, b->X, g->norm_query, d, n, m->rms_eps);
    ops_branch_gate(o, b->u, b->k, b->n, b->value, n, (float)(1.0 / sqrt((double)d)));
    ops_rms_norm_each(o, b->n, b->u, g->norm_conv, d, n, m->rms_eps);
    ops_conv(o, b->q, b->n, g->conv, g->taps, g->size, tail);
    ops_add_two(o, b->X, b->u, b->q);
    ops_name_heads(o, n, "%sple_out", prefix);
}
