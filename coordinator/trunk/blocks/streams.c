/* Several residual streams, mixed anew before and after each part of a layer. */
#include "coordinator/trunk/blocks/blocks.h"

void streams_buffers(struct ops *o, const struct model *m, struct streams_buffers *b)
{
    uint32_t n = m->streams.n;

    b->X = ops_buffer(o, n * m->n_embd, BUF_F32, 0);
    b->z = ops_buffer(o, n * m->n_embd, BUF_F32, 0);
    b->m = ops_buffer(o, (2 + n) * n, BUF_F32, 0);
    b->mix = ops_buffer(o, (2 + n) * n, BUF_F32, 0);
}

void block_streams_in(struct ops *o, const struct model *m, uint32_t layer, int part, const char *prefix,
                      const struct streams_buffers *b, uint32_t x)
{
    const struct model_streams *s = &m->layer[layer].streams[part];

    ops_rms_norm(o, b->z, b->X, MODEL_NONE, m->streams.n * m->n_embd, 1, m->rms_eps);
    ops_matmul(o, b->m, &s->fn, b->z);
    ops_hyper_mix(o, b->mix, b->m, s->scale, s->base, m->streams.n, m->streams.iterations, m->streams.eps);
    ops_name(o, "%shc_%s", prefix, part ? "ffn" : "attn");
    ops_hyper_collapse(o, x, b->X, b->mix, m->streams.n);
}

void block_streams_out(struct ops *o, const struct model *m, const struct streams_buffers *b, uint32_t y)
{
    ops_hyper_expand(o, b->X, y, b->mix, m->streams.n);
}
