/* Launches of operations whose result depends on a row alone: products, norms, functions, rows. */
#include <stdlib.h>
#include <string.h>

#include "gpu-worker/run_cuda.cuh"
extern "C" {
#include "kernels/dot/dot_cuda.h"
#include "kernels/matmul/matmul_cuda.h"
#include "kernels/quantise/quantise_cuda.h"
#include "kernels/type/type.h"
}
#include "kernels/branch/branch_cuda.h"
#include "kernels/dot/widen_cuda.h"
#include "kernels/func/func_cuda.h"
#include "kernels/hyper/hyper_cuda.h"
#include "kernels/moe/moe_cuda.h"
#include "kernels/norm/norm_cuda.h"
#include "kernels/rope/rope_cuda.h"
#include "kernels/topk/topk_cuda.h"

enum { CARRY_THREADS = 256 };

static int do_prepare(struct run_cuda *x, const struct op *op, struct pass p)
{
    struct buffer *in = &x->buf[op->in[0]];
    uint32_t parts = parts_of(&x->c.prog->buffer[op->in[0]]), n = width_of(x, op->in[0]) / parts;

    if (op->n[0] == ACT_F32) /* the buffer itself */
        return 0;
    return act_prepare_cuda((enum act_form)op->n[0], in->data, n, n, (size_t)live(x, p, op->in[0]) * parts,
                            in->form[op->n[0]], in->part_stride[op->n[0]], x->stream);
}

static int do_matmul(struct run_cuda *x, const struct op *op, struct pass p)
{
    const struct prog_weight *w = &x->c.prog->weight[op->w];
    const struct buffer *in = &x->buf[op->in[0]];
    uint32_t form = op->n[0], n_in = width_of(x, op->in[0]);
    const void *acts = form == ACT_F32 ? (const void *)in->data : in->form[form];
    size_t stride = form == ACT_F32 ? n_in * sizeof(float) : in->form_stride[form];

    if (!live(x, p, op->in[0])) /* a prompt pass that wants no logits */
        return 0;
    return matmul_cuda(w->type, x->c.weight[op->w], w->row_bytes, w->cols, w->rows, acts, stride,
                       NULL, live(x, p, op->in[0]), vector_of(x, w->scale), vector_of(x, w->bias),
                       x->buf[op->out].data, width_of(x, op->out), x->stream);
}

/* ---- products by parts ---- */

void parts_lay_out(struct run_cuda *x)
{
    const struct program *p = x->c.prog;

    for (uint32_t i = 0; i < p->n_ops; i++)
        if (p->op[i].kind == OP_MATMUL_PARTS) {
            x->parts.n = p->op[i].n[1];
            x->parts.slots[i] = (struct expert_slot *)run_cuda_take(x, x->parts.n * sizeof(struct expert_slot));
        }
    x->parts.items =
        (struct expert_item *)run_cuda_take(x, EXPERT_TOKENS * (uint64_t)x->parts.n * sizeof *x->parts.items);
    x->parts.n_items = (uint32_t *)run_cuda_take(x, 4);
}

/* Part k of operation i: its rows of w, as an expert's matrix. */
static cudaError_t fill_slots(struct run_cuda *x, uint32_t i, struct expert_slot *slots)
{
    const struct op *op = &x->c.prog->op[i];
    const struct prog_weight *w = &x->c.prog->weight[op->w];
    size_t each = w->rows / op->n[1] * w->row_bytes;

    for (uint32_t k = 0; k < op->n[1]; k++) {
        slots[k].w[0] = (const uint8_t *)x->c.weight[op->w] + k * each;
        slots[k].scale[0] = 1.0f;
    }
    return cudaMemcpy(x->parts.slots[i], slots, op->n[1] * sizeof *slots, cudaMemcpyHostToDevice);
}

/* Item k of list n: the parts k of rows 0 ... n - 1. */
static cudaError_t fill_items(struct run_cuda *x, struct expert_item *items)
{
    for (uint32_t n = 1; n <= EXPERT_TOKENS; n++)
        for (uint32_t k = 0; k < x->parts.n; k++) {
            struct expert_item *it = &items[(n - 1) * x->parts.n + k];
            it->slot = k;
            it->n_tok = n;
            for (uint32_t t = 0; t < n; t++)
                it->tok[t] = it->row[t] = t * x->parts.n + k;
        }
    return cudaMemcpy(x->parts.items, items, EXPERT_TOKENS * (size_t)x->parts.n * sizeof *items,
                      cudaMemcpyHostToDevice);
}

cudaError_t parts_fill(struct run_cuda *x)
{
    size_t n = x->parts.n;
    struct expert_item *items = (struct expert_item *)calloc(EXPERT_TOKENS * n + 1, sizeof *items);
    struct expert_slot *slots = (struct expert_slot *)calloc(n + 1, sizeof *slots);
    cudaError_t rc = items && slots ? cudaSuccess : cudaErrorMemoryAllocation;

    for (uint32_t i = 0; !rc && i < x->c.prog->n_ops; i++)
        if (x->parts.slots[i])
            rc = fill_slots(x, i, slots);
    if (!rc && n)
        rc = fill_items(x, items);
    if (!rc)
        rc = cudaMemcpy(x->parts.n_items, &x->parts.n, 4, cudaMemcpyHostToDevice);
    free(items);
    free(slots);
    return rc;
}

static int do_parts(struct run_cuda *x, const struct op *op, struct pass p)
{
    const struct prog_weight *w = &x->c.prog->weight[op->w];
    const struct buffer *in = &x->buf[op->in[0]];
    uint32_t form = op->n[0], parts = op->n[1], rows = live(x, p, op->in[0]);
    const uint8_t *acts = form == ACT_F32 ? (const uint8_t *)in->data : in->form[form];
    struct dot_cuda_experts j = {};
    int rc = 0;

    j.slots = x->parts.slots[op - x->c.prog->op];
    j.n_items = x->parts.n_items;
    j.row_bytes = w->row_bytes;
    j.n_cols = w->cols;
    j.n_rows = w->rows / parts;
    j.a_stride = form == ACT_F32 ? w->cols * sizeof(float) : in->part_stride[form];
    j.ldy = j.n_rows;
    j.stream = x->stream;
    for (uint32_t t = 0; !rc && t < rows; t += EXPERT_TOKENS) {
        uint32_t n = rows - t < EXPERT_TOKENS ? rows - t : (uint32_t)EXPERT_TOKENS;
        j.several = n > 1;
        j.items = x->parts.items + (n - 1) * parts;
        j.acts = acts + (size_t)t * parts * j.a_stride;
        j.y = x->buf[op->out].data + (size_t)t * width_of(x, op->out);
        rc = dot_cuda_type(w->type)->single(&j);
    }
    return rc;
}

/* ---- norms, router, rows ---- */

static void do_norm(struct run_cuda *x, const struct op *op, struct pass p)
{
    const float *w = vector_of(x, op->w);
    struct norm_rows r = {};

    r.x = x->buf[op->in[0]].data;
    r.y = x->buf[op->out].data;
    r.ldx = width_of(x, op->in[0]);
    r.ldy = width_of(x, op->out);
    r.rows = live(x, p, op->out);
    r.pieces = op->n[1];
    r.n = op->n[0];
    if (op->kind == OP_RMS_NORM) {
        r.y += op->n[3];
        r.each = op->n[2];
        rms_norm_cuda(&r, w, op->f[0], x->stream);
    } else if (op->kind == OP_GATED_NORM) {
        rms_norm_gated_cuda(&r, w, x->buf[op->in[1]].data, op->f[0], x->stream);
    } else if (op->kind == OP_L2_NORM) {
        l2_norm_cuda(&r, op->f[0], x->stream);
        if (op->f[1] != 1)
            vec_scale_cuda(r.y, op->f[1], r.rows * r.ldy, x->stream);
    } else { /* n[0] is the bias */
        r.pieces = 1;
        r.n = width_of(x, op->out);
        layer_norm_cuda(&r, w, vector_of(x, op->n[0]), op->f[0], x->stream);
    }
}

static void do_router(struct run_cuda *x, const struct op *op, struct pass p)
{
    struct router_cuda r = {};

    r.logits = x->buf[op->in[0]].data;
    r.bias = vector_of(x, op->w);
    r.scores = x->buf[op->out].data;
    r.idx = (uint32_t *)x->buf[op->n[3]].data;
    r.w = x->buf[op->n[4]].data;
    r.n = op->n[0];
    r.k = op->n[1];
    r.n_tokens = p.T;
    r.normalise = (op->n[2] & ROUTER_NORMALISE) != 0;
    r.floor = op->f[0];
    r.scale = op->f[1];
    if (op->n[2] & ROUTER_SIGMOID)
        router_sigmoid_cuda(&r, x->stream);
    else
        router_softmax_cuda(&r, x->stream);
}

static void do_func(struct run_cuda *x, const struct op *op, size_t n)
{
    const float *in = x->buf[op->in[0]].data;
    float *out = x->buf[op->out].data;

    if (op->n[0] == FUNC_SIGMOID)
        vec_sigmoid_cuda(in, out, n, x->stream);
    else if (op->n[0] == FUNC_SILU)
        vec_silu_cuda(in, out, n, x->stream);
    else
        vec_exp_cuda(in, out, n, x->stream);
}

/* Row *row of `from` to the first row of `to`; PROG_NONE: nothing. */
static __global__ void carry_row(const uint32_t *row, const float *from, float *to, uint32_t n)
{
    uint32_t i = blockIdx.x * CARRY_THREADS + threadIdx.x;

    if (*row != PROG_NONE && i < n)
        to[i] = from[(size_t)*row * n + i];
}

static void do_rows(struct run_cuda *x, const struct op *op, struct pass p)
{
    const float *in = x->buf[op->in[0]].data;
    float *out = x->buf[op->out].data;
    uint32_t w_in = width_of(x, op->in[0]), w_out = width_of(x, op->out), rows = live(x, p, op->out);

    if (op->kind == OP_PICK)
        pick_rows_cuda(in, w_in, x->out, x->n_out, out, w_out, w_out, p.O, x->stream);
    else if (op->kind == OP_REPEAT)
        slice_rows_cuda(in, w_in, op->n[0], w_in, 0, 0, out, w_out, rows, x->stream);
    else if (op->kind == OP_SLICE)
        slice_rows_cuda(in, w_in, op->n[0], op->n[1], op->n[2], op->n[3], out, w_out, rows, x->stream);
    else
        carry_row<<<(w_out + CARRY_THREADS - 1) / CARRY_THREADS, CARRY_THREADS, 0, x->stream>>>(x->carry, in, out,
                                                                                                w_out);
}

/* Looked-up rows, whose bytes came with the step. */
static void do_table(struct run_cuda *x, const struct op *op, struct pass p)
{
    uint64_t row;

    type_row_bytes(op->n[3], op->n[2], &row);
    dequant_table_cuda(op->n[3], x->table + op->n[0], x->c.prog->token_bytes, row, op->n[1], op->n[2],
                       x->buf[op->out].data, p.T, x->stream);
}

static void do_streams(struct run_cuda *x, const struct op *op, struct pass p)
{
    const float *in = x->buf[op->in[0]].data, *mix = op->in[1] == PROG_NONE ? NULL : x->buf[op->in[1]].data;
    float *out = x->buf[op->out].data;
    uint32_t n = op->n[0], width = width_of(x, op->out);

    if (op->kind == OP_HYPER_MIX)
        hyper_mix_cuda(in, vector_of(x, op->w), vector_of(x, op->n[2]), n, op->f[0], (int)op->n[1], out, p.T,
                       x->stream);
    else if (op->kind == OP_HYPER_COLLAPSE)
        hyper_collapse_cuda(mix, in, n, width, out, p.T, x->stream);
    else if (op->kind == OP_HYPER_EXPAND)
        hyper_expand_cuda(mix, in, out, n, width / n, p.T, x->stream);
    else
        hyper_mean_cuda(in, n, width, out, p.T, x->stream);
}

int run_dense(struct run_cuda *x, const struct op *op, struct pass p)
{
    const struct program *prog = x->c.prog;
    float *out = op->out == PROG_NONE ? NULL : x->buf[op->out].data;
    const float *in = op->in[0] == PROG_NONE ? NULL : x->buf[op->in[0]].data;
    uint32_t rows = out ? live(x, p, op->out) : 0, width = out ? width_of(x, op->out) : 0;
    size_t values = (size_t)rows * width, ahead = (size_t)op->n[3] * (prog->n_rot / 2);

    switch ((enum op_kind)op->kind) {
    case OP_EMBED:
        dequant_rows_cuda(prog->weight[op->w].type, x->c.weight[op->w], prog->weight[op->w].row_bytes,
                          prog->weight[op->w].cols, x->id, out, width, p.T, x->stream);
        break;
    case OP_PREPARE:
        return do_prepare(x, op, p);
    case OP_MATMUL:
        return do_matmul(x, op, p);
    case OP_MATMUL_PARTS:
        return do_parts(x, op, p);
    case OP_RMS_NORM:
    case OP_GATED_NORM:
    case OP_L2_NORM:
    case OP_LAYER_NORM:
        do_norm(x, op, p);
        break;
    case OP_ROPE: /* n[3]: as the position after the token's */
        rope_neox_cuda(out, width, op->n[0], op->n[1], op->n[2], x->cos + ahead, x->sin + ahead, x->pos, p.T,
                       x->stream);
        break;
    case OP_ADD:
        for (int i = 0; i < 2 && op->in[i] != PROG_NONE; i++)
            vec_add_cuda(out, x->buf[op->in[i]].data, values, x->stream);
        break;
    case OP_MUL:
        vec_mul_cuda(out, in, values, x->stream);
        break;
    case OP_ADD_TIMES:
        if (op->n[0] == 1)
            vec_fma1_cuda(x->buf[op->in[1]].data, in, out, width, rows, x->stream);
        else
            vec_fma1_each_cuda(x->buf[op->in[1]].data, in, out, width / op->n[0], op->n[0], rows, x->stream);
        break;
    case OP_SCALE:
        (op->n[0] ? vec_divide_cuda : vec_scale_cuda)(out, op->f[0], values, x->stream);
        break;
    case OP_FUNC:
        do_func(x, op, values);
        break;
    case OP_SWIGLU:
        clamp_swiglu_cuda(in, x->buf[op->in[1]].data, op->f[0], out, values, x->stream);
        break;
    case OP_DECAY:
        decay_cuda(in, vector_of(x, op->w), vector_of(x, op->n[2]), op->n[0], width / op->n[0], op->n[1] != 0,
                   op->f[0], out, rows, x->stream);
        break;
    case OP_ROUTER:
        do_router(x, op, p);
        break;
    case OP_PICK:
    case OP_REPEAT:
    case OP_SLICE:
    case OP_CARRY:
        do_rows(x, op, p);
        break;
    case OP_ROWS:
        do_table(x, op, p);
        break;
    case OP_BRANCH_MEAN:
        branch_mean_cuda(in, x->buf[op->in[1]].data, op->n[0], width, out, rows, x->stream);
        break;
    case OP_BRANCH_GATE:
        branch_gate_cuda(in, x->buf[op->in[1]].data, x->buf[op->n[1]].data, op->f[0], op->n[0], width / op->n[0], out,
                         rows, x->stream);
        break;
    case OP_HYPER_MIX:
    case OP_HYPER_COLLAPSE:
    case OP_HYPER_EXPAND:
    case OP_HYPER_MEAN:
        do_streams(x, op, p);
        break;
    default:
        return NOT_MINE;
    }
    return cudaGetLastError();
}
