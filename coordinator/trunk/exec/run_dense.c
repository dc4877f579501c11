/* Products, norms, functions and copies: operations on rows that know no other row. */
#include "coordinator/trunk/exec/run.h"
#include "kernels/func/func.h"
#include "kernels/matmul/finish.h"
#include "kernels/matmul/matmul.h"
#include "kernels/moe/moe.h"
#include "kernels/norm/norm.h"
#include "kernels/rope/rope.h"
#include "kernels/topk/topk.h"
#include "kernels/type/type.h"

void run_embed(struct exec *x, const struct op *op, struct part p)
{
    const struct prog_weight *w = &x->c.prog->weight[op->w];
    uint32_t a, b;

    cut(x->s->n_tokens, p, 1, &a, &b);
    for (uint32_t t = a; t < b; t++)
        dequant_row(w->type, x->c.weight[op->w] + x->s->token[t].id * w->row_bytes, w->cols,
                    row_f32(x, op->out, t));
}

/* The leader's: it may have to wait for the rows. */
void run_rows(struct exec *x, const struct op *op, struct part p)
{
    const uint8_t *bytes = exec_rows(x)->bytes;
    uint32_t n = op->n[1], values = op->n[2];
    uint64_t row;

    (void)p;
    type_row_bytes(op->n[3], values, &row);
    for (uint32_t t = 0; t < x->s->n_tokens; t++)
        for (uint32_t i = 0; i < n; i++)
            dequant_row(op->n[3], bytes + (size_t)t * x->c.prog->token_bytes + op->n[0] + i * row, values,
                        row_f32(x, op->out, t) + (size_t)i * values);
}

void run_prepare(struct exec *x, const struct op *op, struct part p)
{
    const struct prog_buffer *pb = &x->c.prog->buffer[op->in[0]];
    struct buffer *buf = &x->buf[op->in[0]];
    uint32_t a, b, form = op->n[0], parts = pb->parts ? pb->parts : 1, width = pb->width / parts;

    if (form == ACT_F32)
        return; /* the buffer itself */
    cut(live_rows(x, op->in[0]) * parts, p, 1, &a, &b);
    for (uint32_t i = a; i < b; i++)
        act_prepare(form, row_f32(x, op->in[0], i / parts) + i % parts * width, width,
                    buf->form[form] + i / parts * buf->form_stride[form] + i % parts * buf->part_stride[form]);
}

/* Vector `part` of each row. */
static const uint8_t *acts_of(const struct exec *x, const struct op *op, uint32_t part, uint32_t cols, size_t *stride)
{
    const struct buffer *in = &x->buf[op->in[0]];

    if (op->n[0] == ACT_F32) {
        *stride = width_of(x, op->in[0]) * sizeof(float);
        return (const uint8_t *)in->data + (size_t)part * cols * sizeof(float);
    }
    *stride = in->form_stride[op->n[0]];
    return in->form[op->n[0]] + part * in->part_stride[op->n[0]];
}

/* Rows [a, b) of w times vector `part` of every row of the operand. */
static void product_rows(struct exec *x, const struct op *op, uint32_t part, uint32_t a, uint32_t b)
{
    const struct prog_weight *w = &x->c.prog->weight[op->w];
    uint32_t n = live_rows(x, op->in[0]), ld = width_of(x, op->out);
    float *y = x->buf[op->out].data;
    size_t stride;
    const uint8_t *acts = acts_of(x, op, part, w->cols, &stride);

    if (a >= b || !n)
        return;
    matmul(w->type, x->c.weight[op->w], w->row_bytes, w->cols, a, b, acts, stride, NULL, n, y + a, ld);
    if (w->scale == PROG_NONE && w->bias == PROG_NONE)
        return;
    for (uint32_t t = 0; t < n; t++)
        product_finish(y + (size_t)t * ld + a, b - a, vector_of(x, w->scale),
                       w->bias == PROG_NONE ? NULL : vector_of(x, w->bias) + a);
}

void run_matmul(struct exec *x, const struct op *op, struct part p)
{
    uint32_t a, b;

    cut(x->c.prog->weight[op->w].rows, p, 8, &a, &b);
    product_rows(x, op, 0, a, b);
}

void run_matmul_parts(struct exec *x, const struct op *op, struct part p)
{
    uint32_t a, b, rows = x->c.prog->weight[op->w].rows, each = rows / op->n[1];

    cut(rows, p, 8, &a, &b);
    while (a < b) { /* the rows of one vector at a time */
        uint32_t part = a / each, end = (part + 1) * each < b ? (part + 1) * each : b;
        product_rows(x, op, part, a, end);
        a = end;
    }
}

void run_rms_norm(struct exec *x, const struct op *op, struct part p)
{
    const float *w = vector_of(x, op->w);
    uint32_t a, b;

    cut(live_rows(x, op->out), p, 1, &a, &b);
    for (uint32_t t = a; t < b; t++)
        for (uint32_t i = 0; i < op->n[1]; i++)
            rms_norm(row_f32(x, op->in[0], t) + i * op->n[0], w ? w + (op->n[2] ? i * op->n[0] : 0) : NULL,
                     row_f32(x, op->out, t) + op->n[3] + i * op->n[0], op->n[0], op->f[0]);
}

void run_l2_norm(struct exec *x, const struct op *op, struct part p)
{
    uint32_t a, b;

    cut(live_rows(x, op->out), p, 1, &a, &b);
    for (uint32_t t = a; t < b; t++)
        for (uint32_t i = 0; i < op->n[1]; i++) {
            float *y = row_f32(x, op->out, t) + i * op->n[0];
            l2_norm(row_f32(x, op->in[0], t) + i * op->n[0], y, op->n[0], op->f[0]);
            if (op->f[1] != 1)
                for (uint32_t k = 0; k < op->n[0]; k++)
                    y[k] *= op->f[1];
        }
}

void run_layer_norm(struct exec *x, const struct op *op, struct part p)
{
    uint32_t a, b;

    cut(live_rows(x, op->out), p, 1, &a, &b);
    for (uint32_t t = a; t < b; t++)
        layer_norm(row_f32(x, op->in[0], t), vector_of(x, op->w), vector_of(x, op->n[0]), row_f32(x, op->out, t),
                   width_of(x, op->out), op->f[0]);
}

void run_gated_norm(struct exec *x, const struct op *op, struct part p)
{
    uint32_t a, b;

    cut(live_rows(x, op->out), p, 1, &a, &b);
    for (uint32_t t = a; t < b; t++)
        for (uint32_t i = 0; i < op->n[1]; i++) {
            size_t at = (size_t)i * op->n[0];
            rms_norm_gated(row_f32(x, op->in[0], t) + at, vector_of(x, op->w), row_f32(x, op->in[1], t) + at,
                           row_f32(x, op->out, t) + at, op->n[0], op->f[0]);
        }
}

/* An elementwise operation on all rows: the values [*a, *b) are this thread's. */
static void values(const struct exec *x, uint32_t buf, struct part p, size_t *a, size_t *b)
{
    size_t n = (size_t)live_rows(x, buf) * width_of(x, buf);

    *a = n * p.thread / p.n / 16 * 16;
    *b = p.thread + 1 == p.n ? n : n * (p.thread + 1) / p.n / 16 * 16;
}

void run_func(struct exec *x, const struct op *op, struct part p)
{
    const float *in = x->buf[op->in[0]].data;
    float *out = x->buf[op->out].data;
    size_t a, b;

    values(x, op->out, p, &a, &b);
    if (op->n[0] == FUNC_SIGMOID)
        vec_sigmoid(in + a, out + a, b - a);
    else if (op->n[0] == FUNC_SILU)
        vec_silu(in + a, out + a, b - a);
    else
        vec_exp(in + a, out + a, b - a);
}

void run_scale(struct exec *x, const struct op *op, struct part p)
{
    float *out = x->buf[op->out].data;
    size_t a, b;

    values(x, op->out, p, &a, &b);
    for (size_t i = a; i < b; i++)
        out[i] = op->n[0] ? out[i] / op->f[0] : out[i] * op->f[0];
}

void run_swiglu(struct exec *x, const struct op *op, struct part p)
{
    const float *gate = x->buf[op->in[0]].data, *up = x->buf[op->in[1]].data;
    float *out = x->buf[op->out].data;
    size_t a, b;

    values(x, op->out, p, &a, &b);
    clamp_swiglu(gate + a, up + a, op->f[0], out + a, b - a);
}

void run_rope(struct exec *x, const struct op *op, struct part p)
{
    uint32_t a, b, half = x->c.prog->n_rot / 2;

    cut(x->s->n_tokens, p, 1, &a, &b);
    for (uint32_t t = a; t < b; t++) {
        size_t at = (size_t)(x->s->token[t].pos + op->n[3]) * half;
        for (uint32_t i = 0; i < op->n[0]; i++)
            rope_neox(row_f32(x, op->out, t) + i * op->n[1], op->n[2], x->cos + at, x->sin + at);
    }
}

void run_add(struct exec *x, const struct op *op, struct part p)
{
    uint32_t a, b, width = width_of(x, op->out);

    cut(live_rows(x, op->out), p, 1, &a, &b);
    for (uint32_t t = a; t < b; t++)
        for (int i = 0; i < 2 && op->in[i] != PROG_NONE; i++)
            vec_add(row_f32(x, op->out, t), row_f32(x, op->in[i], t), width);
}

void run_router(struct exec *x, const struct op *op, struct part p)
{
    int normalise = (op->n[2] & ROUTER_NORMALISE) != 0;
    uint32_t a, b;

    cut(x->s->n_tokens, p, 1, &a, &b);
    for (uint32_t t = a; t < b; t++) {
        const float *logits = row_f32(x, op->in[0], t);
        uint32_t *ids = (uint32_t *)row_f32(x, op->n[3], t);
        float *probs = row_f32(x, op->out, t), *weights = row_f32(x, op->n[4], t);
        if (op->n[2] & ROUTER_SIGMOID)
            router_sigmoid(logits, vector_of(x, op->w), op->n[0], op->n[1], normalise, op->f[0], op->f[1], probs,
                           (float *)scratch_of(x, p), ids, weights);
        else
            router_softmax(logits, op->n[0], op->n[1], normalise, op->f[0], op->f[1], probs, ids, weights);
    }
}

void run_pick(struct exec *x, const struct op *op, struct part p)
{
    uint32_t a, b;

    cut(x->s->n_out, p, 1, &a, &b);
    for (uint32_t i = a; i < b; i++)
        memcpy(row_f32(x, op->out, i), row_f32(x, op->in[0], x->s->out[i]), width_of(x, op->out) * sizeof(float));
}

void run_repeat(struct exec *x, const struct op *op, struct part p)
{
    uint32_t a, b, width = width_of(x, op->in[0]);

    cut(x->s->n_tokens, p, 1, &a, &b);
    for (uint32_t t = a; t < b; t++)
        for (uint32_t i = 0; i < op->n[0]; i++)
            memcpy(row_f32(x, op->out, t) + (size_t)i * width, row_f32(x, op->in[0], t), width * sizeof(float));
}

void run_slice(struct exec *x, const struct op *op, struct part p)
{
    uint32_t a, b;

    cut(live_rows(x, op->out), p, 1, &a, &b);
    for (uint32_t t = a; t < b; t++)
        for (uint32_t i = 0; i < op->n[0]; i++)
            memcpy(row_f32(x, op->out, t) + (size_t)i * op->n[1],
                   row_f32(x, op->in[0], t) + (size_t)i * op->n[3] + op->n[2], op->n[1] * sizeof(float));
}

void run_mul(struct exec *x, const struct op *op, struct part p)
{
    float *out = x->buf[op->out].data;
    const float *in = x->buf[op->in[0]].data;
    size_t a, b;

    values(x, op->out, p, &a, &b);
    vec_mul(out + a, in + a, b - a);
}

void run_add_times(struct exec *x, const struct op *op, struct part p)
{
    uint32_t a, b, width = width_of(x, op->in[0]);

    cut(live_rows(x, op->out), p, 1, &a, &b);
    for (uint32_t t = a; t < b; t++)
        for (uint32_t i = 0; i < op->n[0]; i++)
            vec_fma1(row_f32(x, op->in[1], t)[i], row_f32(x, op->in[0], t), row_f32(x, op->out, t) + (size_t)i * width,
                     width);
}

void run_carry(struct exec *x, const struct op *op, struct part p)
{
    if (p.thread == 0 && x->s->pass == STEP_CHAIN)
        memcpy(row_f32(x, op->out, 0), row_f32(x, op->in[0], x->carry), width_of(x, op->out) * sizeof(float));
}
