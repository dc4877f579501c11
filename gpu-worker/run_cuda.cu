/* The card's executor. Every operation is a launch or a few, in the program's order on one stream;
 * what a launch needs to know of a step beyond its number of tokens, it reads from the step record,
 * so that a recorded list serves every position and context. Knows nothing of processes: who writes
 * the record and reads the answer may be another process later, over the same mapped words. */
#include "gpu-worker/run_cuda.h"

#include <assert.h>
#include <cuda_runtime.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpu-worker/calls_cuda.cuh"
#include "gpu-worker/handoff.cuh"
extern "C" {
#include "kernels/dot/widen_cuda.h"
#include "kernels/matmul/matmul_cuda.h"
#include "kernels/quantise/quantise.h"
#include "kernels/quantise/quantise_cuda.h"
#include "kernels/rope/rope.h"
#include "kernels/type/type.h"
}
#include "kernels/attention/attention_cuda.h"
#include "kernels/moe/items_cuda.h"
#include "kernels/moe/moe_cuda.h"
#include "kernels/norm/norm_cuda.h"
#include "kernels/rope/rope_cuda.h"
#include "kernels/topk/topk_cuda.h"

enum {
    N_FORMS = 3,
    ROPE_BLOCK = 256,
    TAKE_THREADS = 256,
    LOGIT_BLOCKS = 64,
    POLLS = 16384 /* looks at the stamp between looks at the card */
};

/* The step record, in mapped host memory; max_tokens and max_out say where its parts are. The host
 * writes it before it launches, and not again before the stamp. */
struct record {
    uint64_t number; /* of the step, from 1 */
    uint32_t n_tokens, n_out;
    uint32_t n_logits, pad; /* rows of them that are wanted */
    uint32_t word[]; /* ids, positions, sequences (max_tokens each), out (max_out) */
};
/* The answer, in mapped host memory: best tokens, then the stamp with release. */
struct answer {
    uint64_t stamp; /* number of the last step that is complete */
    uint64_t pad[7];
    uint32_t best[]; /* max_out */
};

struct buffer {
    float *data;
    uint8_t *form[N_FORMS];
    size_t form_stride[N_FORMS];
};

struct run_cuda {
    struct run_cuda_config c;
    struct run_cuda_counters count;
    cudaStream_t stream;
    cudaGraphExec_t graph[RUN_CUDA_RECORDED + 1]; /* by tokens */
    uint8_t *arena;                               /* everything on the card */
    uint64_t arena_bytes, arena_used;
    struct buffer *buf;
    struct attention_kv *kv;
    float *cos, *sin, *rope_host; /* (n_ctx, n_rot / 2) on the card; a block of both, pinned */
    uint32_t rope_ready;
    void *attention_scratch;
    /* the step on the card */
    uint64_t *number;
    uint32_t *n_out, *id, *pos, *seq, *out;
    /* experts */
    struct expert_item *items;
    uint32_t *n_items;
    struct expert_slot *slots;             /* of own items, with calls */
    struct calls_cuda_layer open;          /* the layer whose rows are to be summed */
    uint8_t *act[N_FORMS]; /* a layer's vectors as gate and up want them */
    float *hidden, *tmp, *rows;
    uint32_t used; /* places of the last call */
    /* the answer */
    uint32_t *best;
    void *best_scratch;
    unsigned *arrived;
    struct record *record;
    struct answer *answer;
    uint64_t steps;
    uint32_t last_out, polls;
};

static int cuda_failed(struct run_cuda *x, cudaError_t rc, const char *what, struct err *e)
{
    return err_set(e, -EIO, "card %d: %s: %s", x->c.device, what, cudaGetErrorString(rc));
}

/* ---- memory: one allocation, laid out twice: once for its size, once for the places ---- */

static void *take(struct run_cuda *x, uint64_t bytes)
{
    uint64_t at = x->arena_used;

    x->arena_used += (bytes + 255) & ~(uint64_t)255;
    return x->arena ? x->arena + at : NULL;
}

static uint32_t rows_of(const struct run_cuda *x, uint32_t buf)
{
    return x->c.prog->buffer[buf].rows ? x->c.max_out : x->c.max_tokens;
}

static void lay_out_buffers(struct run_cuda *x)
{
    const struct program *p = x->c.prog;

    for (uint32_t i = 0; i < p->n_buffers; i++) {
        struct buffer *b = &x->buf[i];
        uint32_t width = p->buffer[i].width;

        b->data = (float *)take(x, (uint64_t)rows_of(x, i) * width * 4);
        for (int f = 0; f < N_FORMS; f++)
            if (p->buffer[i].forms >> f & 1 && f != ACT_F32) {
                b->form_stride[f] = act_stride((enum act_form)f, width);
                b->form[f] = (uint8_t *)take(x, rows_of(x, i) * b->form_stride[f]);
            }
    }
}

static void lay_out_states(struct run_cuda *x)
{
    const struct program *p = x->c.prog;
    uint64_t rows = (uint64_t)x->c.n_ctx * x->c.n_seqs;

    for (uint32_t i = 0; i < p->n_states; i++) {
        const struct prog_state *s = &p->state[i];
        struct attention_kv *kv = &x->kv[i];

        memset(kv, 0, sizeof *kv);
        kv->type = x->c.kv;
        kv->n_ctx = x->c.n_ctx;
        kv->hd = kv->dv = s->head_values;
        kv->kv_heads = s->k_width / s->head_values;
        kv->k = take(x, kv_bytes(x->c.kv, s->k_width) * rows);
        kv->v = take(x, kv_bytes(x->c.kv, s->v_width) * rows);
        kv->pos = x->pos;
        kv->seq = x->seq;
    }
}

/* scratch of the widest operation of each kind, for the executor's one stream */
static void lay_out_scratch(struct run_cuda *x)
{
    const struct program *p = x->c.prog;
    uint64_t attention = 0, pairs = (uint64_t)x->c.max_tokens * p->top_k, hidden = 0, tmp = 0;
    uint32_t few =
        x->c.max_tokens < ATTENTION_SPLIT_TOKENS ? x->c.max_tokens : ATTENTION_SPLIT_TOKENS;

    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct op *op = &p->op[i];

        if (op->kind == OP_ATTENTION) {
            uint64_t n = attention_cuda_scratch(few, op->n[0], op->n[2], x->c.n_ctx);
            attention = n > attention ? n : attention;
        } else if (op->kind == OP_MOE_CALL) {
            const struct expert_shape *s = &x->c.layer[op->n[0]].shape;
            uint64_t n = expert_cuda_tmp(s, (uint32_t)pairs);
            hidden = pairs * s->n_ff > hidden ? pairs * s->n_ff : hidden;
            tmp = n > tmp ? n : tmp;
        }
    }
    x->attention_scratch = take(x, attention);
    x->items = (struct expert_item *)take(x, pairs * sizeof *x->items);
    x->n_items = (uint32_t *)take(x, 4);
    x->slots = (struct expert_slot *)take(x, x->c.calls ? pairs * sizeof *x->slots : 0);
    for (int f = 0; f < N_FORMS; f++)
        x->act[f] = (uint8_t *)take(
            x, hidden && (f == ACT_F32 || p->n_embd % (f == ACT_A32 ? 32 : 256) == 0)
                   ? x->c.max_tokens * act_stride((enum act_form)f, p->n_embd)
                   : 0);
    x->hidden = (float *)take(x, hidden * 4);
    x->tmp = (float *)take(x, tmp * 4);
    x->rows = (float *)take(x, hidden ? pairs * p->n_embd * 4 : 0);
    x->best = (uint32_t *)take(x, x->c.max_out * 4);
    x->best_scratch = take(x, x->c.max_out * argmax_cuda_scratch());
    x->arrived = (unsigned *)take(x, 4);
}

static void lay_out(struct run_cuda *x)
{
    uint64_t rope = (uint64_t)x->c.n_ctx * (x->c.prog->n_rot / 2) * 4;

    x->arena_used = 0;
    x->number = (uint64_t *)take(x, 8);
    x->n_out = (uint32_t *)take(x, 8); /* and rows of logits that are wanted */
    x->id = (uint32_t *)take(x, x->c.max_tokens * 4);
    x->pos = (uint32_t *)take(x, x->c.max_tokens * 4);
    x->seq = (uint32_t *)take(x, x->c.max_tokens * 4);
    x->out = (uint32_t *)take(x, x->c.max_out * 4);
    x->cos = (float *)take(x, rope);
    x->sin = (float *)take(x, rope);
    lay_out_buffers(x);
    lay_out_states(x);
    lay_out_scratch(x);
    x->arena_bytes = x->arena_used;
}

/* ---- kernels of the executor itself ---- */

/* The record from mapped host memory to the card, past L1; one block. */
static __global__ void take_record(const struct record *r, uint32_t max_tokens, uint32_t n_tokens,
                                   uint32_t n_rows, uint64_t *number, uint32_t *n_out, uint32_t *id,
                                   uint32_t *pos, uint32_t *seq, uint32_t *out, struct calls_cuda_words calls)
{
    const volatile uint32_t *w = r->word;

    for (uint32_t i = threadIdx.x; i < n_tokens; i += TAKE_THREADS) {
        id[i] = w[i];
        pos[i] = w[max_tokens + i];
        seq[i] = w[2 * max_tokens + i];
    }
    for (uint32_t i = threadIdx.x; i < n_rows; i += TAKE_THREADS)
        out[i] = w[3 * max_tokens + i];
    if (threadIdx.x == 0) {
        *number = ((const volatile struct record *)r)->number;
        n_out[0] = ((const volatile struct record *)r)->n_out;
        n_out[1] = ((const volatile struct record *)r)->n_logits;
    }
    calls_cuda_take(calls);
}

/* The answer to mapped host memory, its stamp last; one block. */
static __global__ void give_answer(struct answer *a, const uint32_t *best, uint32_t n_rows,
                                   const uint64_t *number, unsigned *arrived, uint32_t n_tokens,
                                   struct calls_cuda_words calls)
{
    calls_cuda_give(calls, n_tokens);
    for (uint32_t i = threadIdx.x; i < n_rows; i += TAKE_THREADS)
        a->best[i] = best[i];
    handoff_publish(&a->stamp, *number, arrived, 1);
}

/* The wanted rows to mapped host memory. */
static __global__ void give_logits(const float *from, uint32_t n, const uint32_t *n_out, float *to)
{
    size_t all = (size_t)*n_out * n, i = blockIdx.x * (size_t)TAKE_THREADS + threadIdx.x;

    for (; 4 * i + 4 <= all; i += gridDim.x * (size_t)TAKE_THREADS)
        ((float4 *)to)[i] = ((const float4 *)from)[i];
    for (i *= 4; i < all && all - i < 4; i++)
        to[i] = from[i];
}

/* ---- one operation: launches on the stream; T tokens, O output rows ---- */

struct pass {
    uint32_t T, O;
};

static uint32_t live(const struct run_cuda *x, struct pass p, uint32_t buf)
{
    return x->c.prog->buffer[buf].rows ? p.O : p.T;
}
static uint32_t width_of(const struct run_cuda *x, uint32_t buf)
{
    return x->c.prog->buffer[buf].width;
}

static int do_matmul(struct run_cuda *x, const struct op *op, struct pass p)
{
    const struct prog_weight *w = &x->c.prog->weight[op->w];
    const struct buffer *in = &x->buf[op->in[0]];
    uint32_t form = op->n[0], n_in = width_of(x, op->in[0]);
    const void *acts = form == ACT_F32 ? (const void *)in->data : in->form[form];
    size_t stride = form == ACT_F32 ? n_in * sizeof(float) : in->form_stride[form];
    const float *scale = w->scale == PROG_NONE ? NULL : (const float *)x->c.weight[w->scale];
    const float *bias = w->bias == PROG_NONE ? NULL : (const float *)x->c.weight[w->bias];

    if (!live(x, p, op->in[0])) /* a prompt pass that wants no logits */
        return 0;
    return matmul_cuda(w->type, x->c.weight[op->w], w->row_bytes, w->cols, w->rows, acts, stride,
                       NULL, live(x, p, op->in[0]), scale, bias, x->buf[op->out].data,
                       width_of(x, op->out), x->stream);
}

static void do_rms_norm(struct run_cuda *x, const struct op *op, struct pass p)
{
    struct norm_rows r = {};

    r.x = x->buf[op->in[0]].data;
    r.y = x->buf[op->out].data;
    r.ldx = width_of(x, op->in[0]);
    r.ldy = width_of(x, op->out);
    r.rows = live(x, p, op->out);
    r.pieces = op->n[1];
    r.n = op->n[0];
    rms_norm_cuda(&r, (const float *)x->c.weight[op->w], op->f[0], x->stream);
}

static void do_router(struct run_cuda *x, const struct op *op, struct pass p)
{
    struct router_cuda r = {};

    r.logits = x->buf[op->in[0]].data;
    r.scores = x->buf[op->out].data;
    r.idx = (uint32_t *)x->buf[op->n[3]].data;
    r.w = x->buf[op->n[4]].data;
    r.n = op->n[0];
    r.k = op->n[1];
    r.n_tokens = p.T;
    r.normalise = (int)op->n[2];
    r.floor = op->f[0];
    r.scale = op->f[1];
    router_softmax_cuda(&r, x->stream);
}

/* The layer's own items, for n vectors from token t0 on: their rows are nodes of the same graph. */
static int do_experts(struct run_cuda *x, const struct op *op, uint32_t t0, uint32_t n,
                      const struct expert_slot *slots)
{
    const struct expert_shape *s = &x->c.layer[op->n[0]].shape;
    const float *in = x->buf[op->in[0]].data + (size_t)t0 * s->n_embd;
    enum act_form form[2];
    struct expert_work work = {};
    int rc = 0;

    for (int m = 0; m < 2; m++) {
        form[m] = type_info(s->type[m])->act;
        if (!rc && (m == 0 || form[1] != form[0]))
            rc = act_prepare_cuda(form[m], in, s->n_embd, s->n_embd, n, x->act[form[m]],
                                  act_stride(form[m], s->n_embd), x->stream);
    }
    work.slots = slots;
    work.items = x->items;
    work.n_items = x->n_items;
    work.max_rows = n * x->used;
    work.several = n > 1;
    if (!rc)
        rc = expert_gate_up_cuda(s, &work, x->act[form[0]], act_stride(form[0], s->n_embd),
                                 x->act[form[1]], act_stride(form[1], s->n_embd), x->tmp, x->hidden,
                                 s->n_ff, x->stream);
    if (!rc)
        rc = expert_down_cuda(s, &work, x->hidden, s->n_ff, x->rows + (size_t)t0 * x->used * s->n_embd,
                              s->n_embd, x->stream);
    return rc;
}

static uint32_t call_parts(const struct run_cuda *x, uint32_t T)
{
    return x->c.calls ? (T + x->c.call_tokens - 1) / x->c.call_tokens : 1;
}

/* One call for n vectors from token t0 on, and the own items beside it. Several parts: one after the other, each
 * gathers its rows. */
static int do_call(struct run_cuda *x, const struct op *op, uint32_t t0, uint32_t n, int last)
{
    struct calls_cuda_layer *l = &x->open;
    int rc;

    l->layer = op->n[0];
    l->used = x->used;
    l->n_tokens = n;
    l->n_embd = x->c.prog->n_embd;
    l->ids = (const uint32_t *)x->buf[op->in[1]].data + (size_t)t0 * x->used;
    l->x = x->buf[op->in[0]].data + (size_t)t0 * l->n_embd;
    l->pair0 = t0 * x->used;
    l->rows = x->rows + (size_t)l->pair0 * l->n_embd;
    rc = calls_cuda_publish(x->c.calls, l, x->items, x->n_items, x->slots, x->stream);
    if (!rc)
        rc = do_experts(x, op, t0, n, x->slots);
    if (!rc && !last)
        rc = calls_cuda_gather(x->c.calls, l, x->stream);
    return rc;
}

static int do_moe(struct run_cuda *x, const struct op *op, struct pass p)
{
    uint32_t parts = call_parts(x, p.T), n = (p.T + parts - 1) / parts;
    int rc = 0;

    x->used = op->n[1];
    if (!x->c.calls) {
        moe_items_cuda((const uint32_t *)x->buf[op->in[1]].data, x->used, p.T, x->c.n_experts, x->items,
                       x->n_items, x->stream);
        return do_experts(x, op, 0, p.T, x->c.layer[op->n[0]].slot);
    }
    for (uint32_t t0 = 0; !rc && t0 < p.T; t0 += n)
        rc = do_call(x, op, t0, p.T - t0 < n ? p.T - t0 : n, parts == 1);
    return rc;
}

static int do_moe_sum(struct run_cuda *x, const struct op *op, struct pass p)
{
    const float *w = x->buf[op->in[1]].data;
    float *y = x->buf[op->out].data;
    uint32_t n = width_of(x, op->out);

    if (!x->c.calls || call_parts(x, p.T) > 1) {
        moe_sum_cuda(w, x->rows, x->used, y, n, n, p.T, x->stream);
        return cudaGetLastError();
    }
    return calls_cuda_sum(x->c.calls, &x->open, w, y, n, x->stream);
}

static int run_op(struct run_cuda *x, const struct op *op, struct pass p)
{
    const struct program *prog = x->c.prog;
    struct buffer *out = op->out == PROG_NONE ? NULL : &x->buf[op->out];

    switch ((enum op_kind)op->kind) {
    case OP_EMBED:
        dequant_rows_cuda(prog->weight[op->w].type, x->c.weight[op->w],
                          prog->weight[op->w].row_bytes, prog->weight[op->w].cols, x->id, out->data,
                          width_of(x, op->out), p.T, x->stream);
        break;
    case OP_PREPARE:
        if (op->n[0] != ACT_F32) {
            struct buffer *in = &x->buf[op->in[0]];
            uint32_t n = width_of(x, op->in[0]);
            return act_prepare_cuda((enum act_form)op->n[0], in->data, n, n, live(x, p, op->in[0]),
                                    in->form[op->n[0]], in->form_stride[op->n[0]], x->stream);
        }
        break;
    case OP_MATMUL:
        return do_matmul(x, op, p);
    case OP_RMS_NORM:
        do_rms_norm(x, op, p);
        break;
    case OP_ROPE:
        rope_neox_cuda(out->data, width_of(x, op->out), op->n[0], op->n[1], op->n[2], x->cos,
                       x->sin, x->pos, p.T, x->stream);
        break;
    case OP_KV_APPEND:
        kv_append_cuda(&x->kv[op->state], x->buf[op->in[0]].data, width_of(x, op->in[0]),
                       x->buf[op->in[1]].data, width_of(x, op->in[1]), p.T, x->stream);
        break;
    case OP_ATTENTION:
        attention_cuda(&x->kv[op->state], x->buf[op->in[0]].data, width_of(x, op->in[0]), op->n[0],
                       op->f[0], out->data, width_of(x, op->out), p.T, x->attention_scratch,
                       x->stream);
        break;
    case OP_ADD:
        vec_add_cuda(out->data, x->buf[op->in[0]].data,
                     (size_t)live(x, p, op->out) * width_of(x, op->out), x->stream);
        break;
    case OP_ROUTER:
        do_router(x, op, p);
        break;
    case OP_MOE_CALL:
        return do_moe(x, op, p);
    case OP_MOE_SUM:
        return do_moe_sum(x, op, p);
    case OP_PICK:
        pick_rows_cuda(x->buf[op->in[0]].data, width_of(x, op->in[0]), x->out, x->n_out, out->data,
                       width_of(x, op->out), width_of(x, op->out), p.O, x->stream);
        break;
    default: /* refused when the program came */
        break;
    }
    return cudaGetLastError();
}

static struct calls_cuda_words words(const struct run_cuda *x)
{
    struct calls_cuda_words none = {};

    return x->c.calls ? calls_cuda_words(x->c.calls) : none;
}

static int begin_list(struct run_cuda *x, struct pass p)
{
    take_record<<<1, TAKE_THREADS, 0, x->stream>>>(x->record, x->c.max_tokens, p.T, p.O, x->number,
                                                   x->n_out, x->id, x->pos, x->seq, x->out, words(x));
    return cudaGetLastError();
}

static int end_list(struct run_cuda *x, struct pass p)
{
    uint32_t logits = x->c.prog->logits;

    argmax_cuda(x->buf[logits].data, width_of(x, logits), width_of(x, logits), p.O, x->best,
                x->best_scratch, x->stream);
    if (x->c.logits && p.O)
        give_logits<<<LOGIT_BLOCKS, TAKE_THREADS, 0, x->stream>>>(x->buf[logits].data, width_of(x, logits), x->n_out + 1,
                                                                   x->c.logits);
    give_answer<<<1, TAKE_THREADS, 0, x->stream>>>(x->answer, x->best, p.O, x->number, x->arrived, p.T, words(x));
    return cudaGetLastError();
}

static int run_list(struct run_cuda *x, struct pass p)
{
    int rc = begin_list(x, p);

    for (uint32_t i = 0; !rc && i < x->c.prog->n_ops; i++)
        rc = run_op(x, &x->c.prog->op[i], p);
    return rc ? rc : end_list(x, p);
}

/* ---- recording ---- */

/* Output rows of a recorded list: as many as tokens. A step that wants fewer leaves the others
 * unseen. */
static struct pass recorded_pass(const struct run_cuda *x, uint32_t T)
{
    struct pass p = {T, T < x->c.max_out ? T : x->c.max_out};

    return p;
}

static int record_graph(struct run_cuda *x, uint32_t T, struct err *e)
{
    cudaGraph_t graph = NULL;
    cudaError_t rc = cudaStreamBeginCapture(x->stream, cudaStreamCaptureModeThreadLocal), end;
    int launched;

    if (rc)
        return cuda_failed(x, rc, "recording cannot begin", e);
    launched = run_list(x, recorded_pass(x, T));
    end = cudaStreamEndCapture(x->stream, &graph);
    rc = launched ? (cudaError_t)launched : end;
    if (!rc)
        rc = cudaGraphInstantiate(&x->graph[T], graph, 0);
    if (!rc)
        rc = cudaGraphUpload(x->graph[T], x->stream);
    if (graph)
        cudaGraphDestroy(graph);
    return rc ? cuda_failed(x, rc, "recording the trunk", e) : 0;
}

/* ---- open and close ---- */

static int open_memory(struct run_cuda *x, struct err *e)
{
    size_t words = 3 * (size_t)x->c.max_tokens + x->c.max_out, half = x->c.prog->n_rot / 2;
    size_t free_bytes, all;
    cudaError_t rc;

    lay_out(x);
    rc = cudaMemGetInfo(&free_bytes, &all);
    if (!rc && x->arena_bytes > free_bytes)
        return err_set(
            e, -ENOMEM,
            "card %d: the trunk's buffers and a context of %u tokens take %llu MiB, %zu MiB are "
            "free; use a smaller -c",
            x->c.device, x->c.n_ctx, (unsigned long long)(x->arena_bytes >> 20), free_bytes >> 20);
    if (!rc)
        rc = cudaMalloc(&x->arena, x->arena_bytes);
    if (!rc)
        rc = cudaMemset(x->arena, 0, x->arena_bytes);
    if (!rc)
        rc = cudaHostAlloc(&x->record, sizeof *x->record + words * 4, cudaHostAllocMapped);
    if (!rc)
        rc = cudaHostAlloc(&x->answer, sizeof *x->answer + x->c.max_out * 4, cudaHostAllocMapped);
    if (!rc)
        rc = cudaHostAlloc(&x->rope_host, 2 * ROPE_BLOCK * (half + 1) * sizeof(float),
                           cudaHostAllocDefault);
    if (rc)
        return cuda_failed(x, rc, "memory for the trunk", e);
    memset(x->record, 0, sizeof *x->record + words * 4);
    memset(x->answer, 0, sizeof *x->answer);
    lay_out(x); /* the places */
    rc = cudaDeviceSynchronize();
    return rc ? cuda_failed(x, rc, "memory for the trunk", e) : 0;
}

static int refuse_unknown(const struct run_cuda_config *c, struct err *e)
{
    uint32_t i = program_not_on_cards(c->prog);

    return i == PROG_NONE ? 0
                          : err_set(e, -ENOTSUP, "card %d: operation %u of the trunk, %s, is not computed on cards yet",
                                    c->device, i, op_name((enum op_kind)c->prog->op[i].kind));
}

int run_cuda_open(const struct run_cuda_config *c, struct run_cuda **out, struct err *e)
{
    struct run_cuda *x = (struct run_cuda *)calloc(1, sizeof *x);
    cudaError_t rc;

    if (!x)
        return err_set(e, -ENOMEM, "no memory for the trunk on a card");
    if (refuse_unknown(c, e)) {
        free(x);
        return e->code;
    }
    x->c = *c;
    x->buf = (struct buffer *)calloc(c->prog->n_buffers + 1, sizeof *x->buf);
    x->kv = (struct attention_kv *)calloc(c->prog->n_states + 1, sizeof *x->kv);
    if (!x->buf || !x->kv) {
        err_set(e, -ENOMEM, "no memory for the trunk on a card");
        goto failed;
    }
    rc = cudaSetDevice(c->device);
    if (!rc)
        rc = cudaStreamCreateWithFlags(&x->stream, cudaStreamNonBlocking);
    if (!rc)
        rc = (cudaError_t)products_load_cuda();
    if (!rc)
        rc = (cudaError_t)attention_cuda_ready();
    if (!rc && c->calls)
        rc = (cudaError_t)calls_cuda_load();
    if (rc) {
        cuda_failed(x, rc, "loading the kernels", e);
        goto failed;
    }
    if (open_memory(x, e))
        goto failed;
    for (uint32_t T = 1; T <= RUN_CUDA_RECORDED && T <= c->max_tokens; T++)
        if (record_graph(x, T, e))
            goto failed;
    rc = cudaStreamSynchronize(x->stream);
    if (rc) {
        cuda_failed(x, rc, "recording the trunk", e);
        goto failed;
    }
    *out = x;
    return 0;
failed:
    run_cuda_close(x);
    return -EIO;
}

void run_cuda_close(struct run_cuda *x)
{
    if (!x)
        return;
    cudaSetDevice(x->c.device);
    for (int T = 0; T <= RUN_CUDA_RECORDED; T++)
        if (x->graph[T])
            cudaGraphExecDestroy(x->graph[T]);
    if (x->stream) {
        cudaStreamSynchronize(x->stream);
        cudaStreamDestroy(x->stream);
    }
    cudaFree(x->arena);
    cudaFreeHost(x->record);
    cudaFreeHost(x->answer);
    cudaFreeHost(x->rope_host);
    free(x->buf);
    free(x->kv);
    free(x);
}

uint64_t run_cuda_bytes(const struct run_cuda_config *c)
{
    struct run_cuda x = {};

    x.c = *c;
    x.buf = (struct buffer *)calloc(c->prog->n_buffers + 1, sizeof *x.buf);
    x.kv = (struct attention_kv *)calloc(c->prog->n_states + 1, sizeof *x.kv);
    if (x.buf && x.kv)
        lay_out(&x);
    free(x.buf);
    free(x.kv);
    return x.arena_bytes;
}

/* ---- a step ---- */

/* Rows of the table up to position `last`, blocks of ROPE_BLOCK: made by the host (rule 23), once.
 */
static cudaError_t ready_rope(struct run_cuda *x, uint32_t last)
{
    size_t half = x->c.prog->n_rot / 2;
    cudaError_t rc = cudaSuccess;

    while (!rc && half && x->rope_ready <= last && x->rope_ready < x->c.n_ctx) {
        uint32_t first = x->rope_ready,
                 end = first + ROPE_BLOCK < x->c.n_ctx ? first + ROPE_BLOCK : x->c.n_ctx;
        float *c = x->rope_host, *s = c + ROPE_BLOCK * half;
        size_t bytes = (end - first) * half * sizeof *c;

        for (uint32_t i = first; i < end; i++)
            rope_row(x->c.prog->rope_base, x->c.prog->n_rot, i, c + (i - first) * half,
                     s + (i - first) * half);
        rc = cudaMemcpyAsync(x->cos + first * half, c, bytes, cudaMemcpyHostToDevice, x->stream);
        if (!rc)
            rc =
                cudaMemcpyAsync(x->sin + first * half, s, bytes, cudaMemcpyHostToDevice, x->stream);
        if (!rc)
            rc = cudaStreamSynchronize(x->stream); /* the pinned block is free again */
        x->rope_ready = end;
    }
    return rc;
}

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static cudaError_t write_record(struct run_cuda *x, const struct step *s)
{
    uint32_t last = 0, *w = x->record->word, n = x->c.max_tokens;

    assert(s->n_tokens && s->n_tokens <= x->c.max_tokens && s->n_out <= x->c.max_out);
    for (uint32_t t = 0; t < s->n_tokens; t++) {
        const struct step_token *tok = &s->token[t];
        assert(tok->id < x->c.prog->n_vocab && tok->pos < x->c.n_ctx && tok->seq < x->c.n_seqs);
        w[t] = tok->id;
        w[n + t] = tok->pos;
        w[2 * n + t] = tok->seq;
        last = tok->pos > last ? tok->pos : last;
    }
    for (uint32_t i = 0; i < s->n_out; i++) {
        assert(s->out[i] < s->n_tokens);
        w[3 * n + i] = s->out[i];
    }
    x->record->number = ++x->steps;
    x->record->n_tokens = s->n_tokens;
    x->record->n_out = x->last_out = s->n_out;
    x->record->n_logits = s->best_only ? 0 : s->n_out;
    return ready_rope(x, last);
}

int run_cuda_step(struct run_cuda *x, const struct step *s, struct err *e)
{
    uint64_t start = now_ns();
    cudaError_t rc = write_record(x, s);

    if (!rc && s->n_tokens <= RUN_CUDA_RECORDED) {
        rc = cudaGraphLaunch(x->graph[s->n_tokens], x->stream);
        x->count.replayed++;
    } else if (!rc) {
        struct pass p = {s->n_tokens, s->n_out};
        rc = (cudaError_t)run_list(x, p);
    }
    x->count.steps++;
    x->count.launch_ns += now_ns() - start;
    return rc ? cuda_failed(x, rc, "a step of the trunk", e) : 0;
}

int run_cuda_poll(struct run_cuda *x, struct err *e)
{
    cudaError_t rc;

    if (__atomic_load_n(&x->answer->stamp, __ATOMIC_ACQUIRE) == x->steps) {
        int code = x->c.calls ? calls_cuda_failed(x->c.calls, e) : 0;
        return code ? code : 1;
    }
    if (++x->polls % POLLS)
        return 0;
    rc = cudaStreamQuery(x->stream); /* a fault never stamps */
    return rc && rc != cudaErrorNotReady ? cuda_failed(x, rc, "a step of the trunk", e) : 0;
}

int run_cuda_wait(struct run_cuda *x, uint32_t limit_ms, const uint32_t **best, struct err *e)
{
    uint64_t end = now_ns() + limit_ms * 1000000ull;
    int rc;

    while (!(rc = run_cuda_poll(x, e)))
        if (x->polls % POLLS == 0 && now_ns() > end)
            return err_set(e, -ETIMEDOUT, "card %d: a step of the trunk took more than %u ms",
                           x->c.device, limit_ms);
    *best = x->answer->best;
    return rc < 0 ? rc : 0;
}

const uint32_t *run_cuda_best(const struct run_cuda *x)
{
    return x->answer->best;
}

int run_cuda_logits(struct run_cuda *x, float *to, struct err *e)
{
    uint32_t logits = x->c.prog->logits;
    cudaError_t rc = cudaMemcpyAsync(to, x->buf[logits].data,
                                     (size_t)x->last_out * width_of(x, logits) * sizeof *to,
                                     cudaMemcpyDeviceToHost, x->stream);

    if (!rc)
        rc = cudaStreamSynchronize(x->stream);
    return rc ? cuda_failed(x, rc, "copying the logits", e) : 0;
}

int run_cuda_slowly(struct run_cuda *x, const struct step *s, run_cuda_seen *seen, void *arg,
                    struct err *e)
{
    struct pass p = {s->n_tokens, s->n_out};
    cudaError_t rc = write_record(x, s);

    if (!rc)
        rc = (cudaError_t)begin_list(x, p);
    for (uint32_t i = 0; !rc && i < x->c.prog->n_ops; i++) {
        const struct op *op = &x->c.prog->op[i];
        uint32_t buf = op->out == PROG_NONE ? op->in[0] : op->out;

        rc = (cudaError_t)run_op(x, op, p);
        if (!rc)
            rc = cudaStreamSynchronize(x->stream);
        if (!rc && seen)
            seen(arg, op, x->buf[buf].data, live(x, p, buf), width_of(x, buf));
    }
    if (!rc)
        rc = (cudaError_t)end_list(x, p);
    if (!rc)
        rc = cudaStreamSynchronize(x->stream);
    return rc ? cuda_failed(x, rc, "a step of the trunk", e) : 0;
}

const void *run_cuda_buffer(const struct run_cuda *x, uint32_t buffer)
{
    return x->buf[buffer].data;
}

const struct run_cuda_counters *run_cuda_counters(const struct run_cuda *x)
{
    return &x->count;
}
