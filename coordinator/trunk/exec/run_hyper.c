/* Several residual streams: a token's with their coefficients (pre, post, C side by side), or with gates. */
#include "coordinator/trunk/exec/run.h"
#include "kernels/branch/branch.h"
#include "kernels/hyper/hyper.h"

void run_hyper_mix(struct exec *x, const struct op *op, struct part p)
{
    uint32_t a, b, n = op->n[0];

    cut(x->s->n_tokens, p, 1, &a, &b);
    for (uint32_t t = a; t < b; t++) {
        float *mix = row_f32(x, op->out, t);
        hyper_mix(row_f32(x, op->in[0], t), vector_of(x, op->w), vector_of(x, op->n[2]), n, op->f[0], (int)op->n[1],
                  mix, mix + n, mix + 2 * n);
    }
}

void run_hyper_collapse(struct exec *x, const struct op *op, struct part p)
{
    uint32_t a, b;

    cut(x->s->n_tokens, p, 1, &a, &b);
    for (uint32_t t = a; t < b; t++)
        hyper_collapse(row_f32(x, op->in[1], t), row_f32(x, op->in[0], t), op->n[0], width_of(x, op->out),
                       row_f32(x, op->out, t));
}

void run_hyper_expand(struct exec *x, const struct op *op, struct part p)
{
    uint32_t a, b, n = op->n[0];

    cut(x->s->n_tokens, p, 1, &a, &b);
    for (uint32_t t = a; t < b; t++) {
        const float *mix = row_f32(x, op->in[1], t);
        hyper_expand(mix + n, mix + 2 * n, row_f32(x, op->in[0], t), row_f32(x, op->out, t), n,
                     width_of(x, op->in[0]));
    }
}

void run_hyper_mean(struct exec *x, const struct op *op, struct part p)
{
    uint32_t a, b;

    cut(x->s->n_tokens, p, 1, &a, &b);
    for (uint32_t t = a; t < b; t++)
        hyper_mean(row_f32(x, op->in[0], t), op->n[0], width_of(x, op->out), row_f32(x, op->out, t));
}

void run_branch_mean(struct exec *x, const struct op *op, struct part p)
{
    uint32_t a, b;

    cut(x->s->n_tokens, p, 1, &a, &b);
    for (uint32_t t = a; t < b; t++)
        branch_mean(row_f32(x, op->in[0], t), row_f32(x, op->in[1], t), op->n[0], width_of(x, op->out),
                    row_f32(x, op->out, t));
}

void run_branch_gate(struct exec *x, const struct op *op, struct part p)
{
    uint32_t a, b;

    cut(x->s->n_tokens, p, 1, &a, &b);
    for (uint32_t t = a; t < b; t++)
        branch_gate(row_f32(x, op->in[0], t), row_f32(x, op->in[1], t), row_f32(x, op->n[1], t), op->f[0], op->n[0],
                    width_of(x, op->n[1]), row_f32(x, op->out, t));
}
