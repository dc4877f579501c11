/* The card's executor. Every operation is a launch or a few, in the program's order on one stream;
 * what a launch needs to know of a step beyond its number of tokens, it reads from the step record,
 * so that a recorded list serves every position and context. Knows nothing of processes: who writes
 * the record and reads the answer may be another process later, over the same mapped words. */
#include "gpu-worker/run_cuda.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpu-worker/calls_cuda.cuh"
#include "gpu-worker/handoff.cuh"
#include "gpu-worker/run_cuda.cuh"
extern "C" {
#include "kernels/expert/many_cuda.h"
#include "kernels/matmul/matmul_cuda.h"
#include "kernels/quantise/quantise_cuda.h"
#include "kernels/rope/rope.h"
#include "kernels/type/type.h"
}
#include "kernels/attention/attention_cuda.h"
#include "kernels/moe/items_cuda.h"
#include "kernels/moe/moe_cuda.h"
#include "kernels/topk/topk_cuda.h"

enum {
    ROPE_BLOCK = 256,
    TAKE_THREADS = 256,
    LOGIT_BLOCKS = 64,
    MANY = 8, /* vectors an expert in the mean, from which on its items go as products: both take as long */
    RUN_WORDS = sizeof(struct run) / 4,
    POLLS = 16384 /* looks at the stamp between looks at the card */
};

/* The step record, in mapped host memory; max_tokens and max_out say where its parts are. The host
 * writes it before it launches, and not again before the stamp. */
struct record {
    uint64_t number; /* of the step, from 1 */
    uint32_t n_tokens, n_out;
    uint32_t n_logits; /* rows of them that are wanted */
    uint32_t n_runs;   /* sequences of the step */
    uint32_t carry;    /* OP_CARRY's row; PROG_NONE: none */
    uint32_t pad;
    uint32_t word[]; /* ids, positions, sequences (max_tokens each), out (max_out), runs (n_seqs) */
};
/* The answer, in mapped host memory: best tokens, then the stamp with release. */
struct answer {
    uint64_t stamp; /* number of the last step that is complete */
    uint64_t pad[7];
    uint32_t best[]; /* max_out */
};

static int cuda_failed(struct run_cuda *x, cudaError_t rc, const char *what, struct err *e)
{
    return err_set(e, -EIO, "card %d: %s: %s", x->c.device, what, cudaGetErrorString(rc));
}

/* ---- memory: one allocation, laid out twice: once for its size, once for the places ---- */

void *run_cuda_take(struct run_cuda *x, uint64_t bytes)
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

        b->data = (float *)run_cuda_take(x, (uint64_t)rows_of(x, i) * width * 4);
        for (int f = 0; f < N_FORMS; f++)
            if (p->buffer[i].forms >> f & 1 && f != ACT_F32) {
                b->part_stride[f] = act_stride_cuda((enum act_form)f, width / parts_of(&p->buffer[i]));
                b->form_stride[f] = parts_of(&p->buffer[i]) * b->part_stride[f];
                b->form[f] = (uint8_t *)run_cuda_take(x, rows_of(x, i) * b->form_stride[f]);
            }
    }
}

/* do n vectors with so many experts each give an expert enough of them? */
static int goes_as_products(const struct run_cuda *x, uint32_t n, uint32_t used)
{
    return (uint64_t)n * used >= (uint64_t)MANY * x->c.n_experts;
}

/* scratch of the widest operation of each kind, for the executor's one stream */
static void lay_out_scratch(struct run_cuda *x)
{
    const struct program *p = x->c.prog;
    uint64_t attention = 0, pairs = (uint64_t)x->c.max_tokens * p->top_k, hidden = 0, tmp = 0;
    uint64_t many = 0;
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
            n = goes_as_products(x, x->c.max_tokens, p->top_k) ? expert_many_cuda_tmp(s, (uint32_t)pairs) : 0;
            many = n > many ? n : many;
        }
    }
    x->attention_scratch = run_cuda_take(x, attention);
    x->items = (struct expert_item *)run_cuda_take(x, pairs * sizeof *x->items);
    x->n_items = (uint32_t *)run_cuda_take(x, 4);
    x->slots = (struct expert_slot *)run_cuda_take(x, x->c.calls ? pairs * sizeof *x->slots : 0);
    for (int f = 0; f < N_FORMS; f++)
        x->act[f] = (uint8_t *)run_cuda_take(
            x, hidden && (f == ACT_F32 || p->n_embd % (f == ACT_A32 ? 32 : 256) == 0)
                   ? x->c.max_tokens * act_stride_cuda((enum act_form)f, p->n_embd)
                   : 0);
    x->hidden = (float *)run_cuda_take(x, hidden * 4);
    x->tmp = (float *)run_cuda_take(x, tmp * 4);
    x->many = run_cuda_take(x, many);
    x->rows = (float *)run_cuda_take(x, hidden ? pairs * p->n_embd * 4 : 0);
    x->best = (uint32_t *)run_cuda_take(x, x->c.max_out * 4);
    x->best_scratch = run_cuda_take(x, x->c.max_out * argmax_cuda_scratch());
    x->arrived = (unsigned *)run_cuda_take(x, 4);
}

static void lay_out(struct run_cuda *x)
{
    uint64_t rope = ((uint64_t)x->c.n_ctx + 1) * (x->c.prog->n_rot / 2) * 4;

    x->arena_used = 0;
    x->number = (uint64_t *)run_cuda_take(x, 8);
    x->n_out = (uint32_t *)run_cuda_take(x, 8); /* and rows of logits that are wanted */
    x->id = (uint32_t *)run_cuda_take(x, x->c.max_tokens * 4);
    x->pos = (uint32_t *)run_cuda_take(x, x->c.max_tokens * 4);
    x->seq = (uint32_t *)run_cuda_take(x, x->c.max_tokens * 4);
    x->out = (uint32_t *)run_cuda_take(x, x->c.max_out * 4);
    x->cos = (float *)run_cuda_take(x, rope);
    x->sin = (float *)run_cuda_take(x, rope);
    x->n_runs = (uint32_t *)run_cuda_take(x, 4);
    x->carry = (uint32_t *)run_cuda_take(x, 4);
    x->run = (struct run *)run_cuda_take(x, x->c.n_seqs * sizeof *x->run);
    x->table = (uint8_t *)run_cuda_take(x, (uint64_t)x->c.max_tokens * x->c.prog->token_bytes);
    lay_out_buffers(x);
    states_lay_out(x);
    parts_lay_out(x);
    lay_out_scratch(x);
    x->arena_bytes = x->arena_used;
}

/* ---- kernels of the executor itself ---- */

/* Where the step lies on the card. */
struct taken {
    uint64_t *number;
    uint32_t *n_out, *id, *pos, *seq, *out, *n_runs, *carry, *run;
};

/* The record from mapped host memory to the card, past L1; one block. */
static __global__ void take_record(const struct record *r, uint32_t max_tokens, uint32_t max_out, uint32_t n_tokens,
                                   uint32_t n_rows, uint32_t most_runs, struct taken to,
                                   struct calls_cuda_words calls)
{
    const volatile struct record *v = r;
    const volatile uint32_t *w = r->word, *runs = w + 3 * max_tokens + max_out;

    for (uint32_t i = threadIdx.x; i < n_tokens; i += TAKE_THREADS) {
        to.id[i] = w[i];
        to.pos[i] = w[max_tokens + i];
        to.seq[i] = w[2 * max_tokens + i];
    }
    for (uint32_t i = threadIdx.x; i < n_rows; i += TAKE_THREADS)
        to.out[i] = w[3 * max_tokens + i];
    for (uint32_t i = threadIdx.x; i < most_runs * RUN_WORDS; i += TAKE_THREADS)
        to.run[i] = runs[i];
    if (threadIdx.x == 0) {
        *to.number = v->number;
        to.n_out[0] = v->n_out;
        to.n_out[1] = v->n_logits;
        *to.n_runs = v->n_runs;
        *to.carry = v->carry;
    }
    calls_cuda_take(calls);
}

/* Looked-up rows of a step's tokens likewise. */
static __global__ void take_rows(const volatile uint32_t *from, uint32_t *to, uint32_t n)
{
    uint32_t i = blockIdx.x * TAKE_THREADS + threadIdx.x;

    if (i < n)
        to[i] = from[i];
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

/* ---- experts ---- */

/* The layer's own items, for n vectors: their rows are nodes of the same graph. */
static int do_experts(struct run_cuda *x, const struct op *op, uint32_t n, const struct expert_slot *slots)
{
    const struct expert_shape *s = &x->c.layer[op->n[0]].shape;
    const float *in = x->buf[op->in[0]].data;
    enum act_form form[2];
    struct expert_work work = {};
    int rc = 0;

    for (int m = 0; m < 2; m++) {
        form[m] = type_info(s->type[m])->act;
        if (!rc && (m == 0 || form[1] != form[0]))
            rc = act_prepare_cuda(form[m], in, s->n_embd, s->n_embd, n, x->act[form[m]],
                                  act_stride_cuda(form[m], s->n_embd), x->stream);
    }
    work.slots = slots;
    work.items = x->items;
    work.n_items = x->n_items;
    work.max_rows = n * x->used;
    work.several = n > 1;
    work.early = 1; /* vectors were prepared after the list was made */
    if (!rc && goes_as_products(x, n, x->used) && expert_many_cuda_tmp(s, work.max_rows)) {
        struct expert_vectors v = {};
        for (int m = 0; m < 2; m++) {
            v.acts[m] = x->act[form[m]];
            v.stride[m] = act_stride_cuda(form[m], s->n_embd);
        }
        return expert_many_cuda(s, &work, &v, x->many, x->hidden, s->n_ff, x->rows, s->n_embd, x->stream);
    }
    if (!rc)
        rc = expert_gate_up_cuda(s, &work, x->act[form[0]], act_stride_cuda(form[0], s->n_embd),
                                 x->act[form[1]], act_stride_cuda(form[1], s->n_embd), x->tmp, x->hidden,
                                 s->n_ff, x->stream);
    if (!rc)
        rc = expert_down_cuda(s, &work, x->hidden, s->n_ff, x->rows, s->n_embd, x->stream);
    return rc;
}

static uint32_t call_parts(const struct run_cuda *x, uint32_t T)
{
    return x->c.calls ? (T + x->c.call_tokens - 1) / x->c.call_tokens : 1;
}

/* n vectors of a layer from token t0 on, as calls see them. */
static void open_layer(struct run_cuda *x, const struct op *op, uint32_t t0, uint32_t n)
{
    struct calls_cuda_layer *l = &x->open;

    l->layer = op->n[0];
    l->used = x->used;
    l->n_tokens = n;
    l->n_embd = x->c.prog->n_embd;
    l->ids = (const uint32_t *)x->buf[op->in[1]].data + (size_t)t0 * x->used;
    l->x = x->buf[op->in[0]].data + (size_t)t0 * l->n_embd;
    l->pair0 = t0 * x->used;
    l->by_host = !x->recording;
    l->rows = x->rows + (size_t)l->pair0 * l->n_embd;
}

static int publish(struct run_cuda *x, const struct op *op, uint32_t t0, uint32_t n)
{
    open_layer(x, op, t0, n);
    return calls_cuda_publish(x->c.calls, &x->open, x->items, x->n_items, x->slots, x->stream);
}

/* Several calls, one after the other, each gathers its rows. The own rows are made at once, beside the first call:
 * each expert's weights are read once, and meet as many vectors as there are. */
static int do_calls(struct run_cuda *x, const struct op *op, uint32_t T, uint32_t n)
{
    int rc = 0;

    for (uint32_t t0 = 0; !rc && t0 < T; t0 += n) {
        uint32_t here = T - t0 < n ? T - t0 : n;
        rc = publish(x, op, t0, here);
        if (!rc && t0 == 0) {
            open_layer(x, op, 0, T);
            rc = calls_cuda_own(x->c.calls, &x->open, x->items, x->n_items, x->slots, x->stream);
            if (!rc)
                rc = do_experts(x, op, T, x->slots);
            open_layer(x, op, 0, here);
        }
        if (!rc)
            rc = calls_cuda_gather(x->c.calls, &x->open, x->stream);
    }
    return rc;
}

static int do_moe(struct run_cuda *x, const struct op *op, struct pass p)
{
    uint32_t parts = call_parts(x, p.T);
    int rc;

    x->used = op->n[1];
    if (!x->c.calls) {
        moe_items_cuda((const uint32_t *)x->buf[op->in[1]].data, x->used, p.T, x->c.n_experts, x->items,
                       x->n_items, x->stream);
        return do_experts(x, op, p.T, x->c.layer[op->n[0]].slot);
    }
    if (parts > 1)
        return do_calls(x, op, p.T, (p.T + parts - 1) / parts);
    rc = publish(x, op, 0, p.T);
    return rc ? rc : do_experts(x, op, p.T, x->slots);
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
    int rc;

    if (op->kind == OP_MOE_CALL)
        return do_moe(x, op, p);
    if (op->kind == OP_MOE_SUM)
        return do_moe_sum(x, op, p);
    rc = run_dense(x, op, p);
    return rc == NOT_MINE ? run_state(x, op, p) : rc; /* others were refused when the program came */
}

static struct calls_cuda_words words(const struct run_cuda *x)
{
    struct calls_cuda_words none = {};

    return x->c.calls ? calls_cuda_words(x->c.calls) : none;
}

static int begin_list(struct run_cuda *x, struct pass p)
{
    uint32_t n = p.T * (x->c.prog->token_bytes / 4);
    struct taken to = {x->number, x->n_out, x->id, x->pos, x->seq, x->out, x->n_runs, x->carry, (uint32_t *)x->run};

    take_record<<<1, TAKE_THREADS, 0, x->stream>>>(x->record, x->c.max_tokens, x->c.max_out, p.T, p.O, most_runs(x, p),
                                                   to, words(x));
    if (n)
        take_rows<<<(n + TAKE_THREADS - 1) / TAKE_THREADS, TAKE_THREADS, 0, x->stream>>>((uint32_t *)x->table_host,
                                                                                         (uint32_t *)x->table, n);
    return cudaGetLastError();
}

static uint32_t logits_of(const struct run_cuda *x, struct pass p)
{
    return p.draft ? x->c.prog->draft_logits : x->c.prog->logits;
}

static int end_list(struct run_cuda *x, struct pass p)
{
    uint32_t logits = logits_of(x, p);

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
    const struct program *prog = x->c.prog;
    uint32_t end = p.draft ? prog->n_ops : prog->draft_at;
    int rc = begin_list(x, p);

    for (uint32_t i = p.draft ? prog->draft_at : 0; !rc && i < end; i++)
        rc = run_op(x, &prog->op[i], p);
    return rc ? rc : end_list(x, p);
}

/* ---- recording ---- */

/* Output rows of a recorded list: as many as tokens. A step that wants fewer leaves the others
 * unseen. */
static struct pass recorded_pass(const struct run_cuda *x, uint32_t T, int draft)
{
    struct pass p = {T, T < x->c.max_out ? T : x->c.max_out, draft};

    return p;
}

static int record_graph(struct run_cuda *x, uint32_t T, int draft, struct err *e)
{
    cudaGraph_t graph = NULL;
    cudaError_t rc = cudaStreamBeginCapture(x->stream, cudaStreamCaptureModeThreadLocal), end;
    int launched;

    if (rc)
        return cuda_failed(x, rc, "recording cannot begin", e);
    x->recording = 1;
    launched = run_list(x, recorded_pass(x, T, draft));
    x->recording = 0;
    end = cudaStreamEndCapture(x->stream, &graph);
    rc = launched ? (cudaError_t)launched : end;
    if (!rc)
        rc = cudaGraphInstantiate(&x->graph[draft][T], graph, 0);
    if (!rc)
        rc = cudaGraphUpload(x->graph[draft][T], x->stream);
    if (graph)
        cudaGraphDestroy(graph);
    return rc ? cuda_failed(x, rc, "recording the trunk", e) : 0;
}

/* ---- open and close ---- */

static int open_memory(struct run_cuda *x, struct err *e)
{
    size_t words = 3 * (size_t)x->c.max_tokens + x->c.max_out + x->c.n_seqs * RUN_WORDS, half = x->c.prog->n_rot / 2;
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
    if (!rc && x->c.prog->token_bytes)
        rc = cudaHostAlloc(&x->table_host, (size_t)x->c.max_tokens * x->c.prog->token_bytes, cudaHostAllocMapped);
    if (!rc)
        rc = cudaHostAlloc(&x->rope_host, 2 * ROPE_BLOCK * (half + 1) * sizeof(float),
                           cudaHostAllocDefault);
    if (rc)
        return cuda_failed(x, rc, "memory for the trunk", e);
    memset(x->record, 0, sizeof *x->record + words * 4);
    memset(x->answer, 0, sizeof *x->answer);
    lay_out(x); /* the places */
    rc = parts_fill(x);
    if (!rc)
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
    int drafts = c->prog->draft_at < c->prog->n_ops;
    cudaError_t rc;

    if (!x)
        return err_set(e, -ENOMEM, "no memory for the trunk on a card");
    if (refuse_unknown(c, e)) {
        free(x);
        return e->code;
    }
    x->c = *c;
    x->buf = (struct buffer *)calloc(c->prog->n_buffers + 1, sizeof *x->buf);
    x->state = (struct state_place *)calloc(c->prog->n_states + 1, sizeof *x->state);
    x->parts.slots = (struct expert_slot **)calloc(c->prog->n_ops + 1, sizeof *x->parts.slots);
    x->versions = versions_open(c->prog, c->n_seqs, c->n_saved);
    if (!x->buf || !x->state || !x->parts.slots || !x->versions) {
        err_set(e, -ENOMEM, "no memory for the trunk on a card");
        goto failed;
    }
    rc = cudaSetDevice(c->device);
    if (!rc)
        rc = cudaStreamCreateWithFlags(&x->stream, cudaStreamNonBlocking);
    if (!rc)
        rc = (cudaError_t)products_load_cuda();
    if (!rc)
        rc = (cudaError_t)expert_many_load_cuda();
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
        if (record_graph(x, T, 0, e) || (drafts && record_graph(x, T, 1, e)))
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
        for (int draft = 0; draft < 2; draft++)
            if (x->graph[draft][T])
                cudaGraphExecDestroy(x->graph[draft][T]);
    if (x->stream) {
        cudaStreamSynchronize(x->stream);
        cudaStreamDestroy(x->stream);
    }
    cudaFree(x->arena);
    cudaFreeHost(x->record);
    cudaFreeHost(x->answer);
    cudaFreeHost(x->rope_host);
    cudaFreeHost(x->table_host);
    versions_close(x->versions);
    free(x->parts.slots);
    free(x->buf);
    free(x->state);
    free(x);
}

uint64_t run_cuda_bytes(const struct run_cuda_config *c)
{
    struct run_cuda x = {};

    x.c = *c;
    x.buf = (struct buffer *)calloc(c->prog->n_buffers + 1, sizeof *x.buf);
    x.state = (struct state_place *)calloc(c->prog->n_states + 1, sizeof *x.state);
    x.parts.slots = (struct expert_slot **)calloc(c->prog->n_ops + 1, sizeof *x.parts.slots);
    if (x.buf && x.state && x.parts.slots)
        lay_out(&x);
    free(x.buf);
    free(x.state);
    free(x.parts.slots);
    return x.arena_bytes;
}

/* ---- a step ---- */

/* Rows of the table up to position `last`, blocks of ROPE_BLOCK: made by the host (rule 23), once.
 */
static cudaError_t ready_rope(struct run_cuda *x, uint32_t last)
{
    size_t half = x->c.prog->n_rot / 2;
    cudaError_t rc = cudaSuccess;

    while (!rc && half && x->rope_ready <= last && x->rope_ready <= x->c.n_ctx) {
        uint32_t first = x->rope_ready,
                 end = first + ROPE_BLOCK < x->c.n_ctx + 1 ? first + ROPE_BLOCK : x->c.n_ctx + 1;
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

static struct pass pass_of(const struct step *s)
{
    struct pass p = {s->n_tokens, s->n_out, s->pass != STEP_TRUNK};

    return p;
}

static cudaError_t write_record(struct run_cuda *x, const struct step *s)
{
    uint32_t last = 0, *w = x->record->word, n = x->c.max_tokens, n_runs;
    const struct run *runs;

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
    if (x->table_host) {
        struct step_rows rows;
        x->c.rows(x->c.rows_arg, s, &rows);
        memcpy(x->table_host, rows.bytes, (size_t)s->n_tokens * x->c.prog->token_bytes);
    }
    versions_begin(x->versions, s);
    runs = versions_runs(x->versions, &n_runs);
    memcpy(w + 3 * n + x->c.max_out, runs, n_runs * sizeof *runs);
    x->record->n_runs = n_runs;
    x->record->carry = s->pass == STEP_CHAIN ? x->last_draft : PROG_NONE;
    if (s->pass != STEP_TRUNK)
        x->last_draft = s->n_out ? s->n_out - 1 : 0;
    x->last_logits = logits_of(x, pass_of(s));
    x->record->number = ++x->steps;
    x->record->n_tokens = s->n_tokens;
    x->record->n_out = x->last_out = s->n_out;
    x->record->n_logits = s->best_only ? 0 : s->n_out;
    return ready_rope(x, last + 1); /* a NextN block may look one position ahead */
}

int run_cuda_step(struct run_cuda *x, const struct step *s, struct err *e)
{
    uint64_t start = now_ns();
    cudaError_t rc = write_record(x, s);

    if (!rc && s->n_tokens <= RUN_CUDA_RECORDED) {
        rc = cudaGraphLaunch(x->graph[s->pass != STEP_TRUNK][s->n_tokens], x->stream);
        x->count.replayed++;
    } else if (!rc) {
        rc = (cudaError_t)run_list(x, pass_of(s));
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
    uint32_t logits = x->last_logits;
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
    const struct program *prog = x->c.prog;
    struct pass p = pass_of(s);
    uint32_t end = p.draft ? prog->n_ops : prog->draft_at;
    cudaError_t rc = write_record(x, s);

    if (!rc)
        rc = (cudaError_t)begin_list(x, p);
    for (uint32_t i = p.draft ? prog->draft_at : 0; !rc && i < end; i++) {
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

/* ---- saved states ---- */

static int copied(struct run_cuda *x, const struct version_copy *c, uint32_t slot, int back, struct err *e)
{
    cudaError_t rc = states_copy(x, c, slot, back);

    if (!rc)
        rc = cudaStreamSynchronize(x->stream);
    return rc ? cuda_failed(x, rc, "copying a sequence's state", e) : 0;
}

int run_cuda_save(struct run_cuda *x, uint32_t seq, uint32_t pos, uint32_t slot, struct err *e)
{
    struct version_copy c = versions_save(x->versions, seq, pos, slot);

    return copied(x, &c, slot, 0, e);
}
int run_cuda_restore(struct run_cuda *x, uint32_t slot, struct err *e)
{
    struct version_copy c = versions_restore(x->versions, slot);

    return copied(x, &c, slot, 1, e);
}

const struct run_cuda_counters *run_cuda_counters(const struct run_cuda *x)
{
    return &x->count;
}
