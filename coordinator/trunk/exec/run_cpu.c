/* The CPU executor. One plan of a step says for each operation whether the whole team works on it or
 * the leader alone, and where threads must meet; then every thread walks the list. How work is cut
 * never reaches a value: an operation's result is defined by row, by token or by head. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "coordinator/trunk/exec/exec.h"
#include "coordinator/trunk/exec/ahead.h"
#include "coordinator/trunk/exec/moe.h"
#include "kernels/matmul/finish.h"
#include "kernels/matmul/matmul.h"
#include "kernels/moe/moe.h"
#include "kernels/norm/norm.h"
#include "kernels/quantise/quantise.h"
#include "kernels/rope/rope.h"
#include "kernels/topk/topk.h"

#define N_FORMS 3
#define ROPE_BLOCK 256 /* rotations are made for this many positions at a time */
/* Multiply-adds below which a second thread costs more than it saves (a meeting is about half a
 * microsecond). Changes who computes, never what. */
#define WORTH_SHARING 16384

struct buffer {
    void *data; /* (rows, width) */
    uint8_t *form[N_FORMS];
    size_t form_stride[N_FORMS];
};
struct state { /* keys and values, head by head: (n_seqs, kv heads, n_ctx, values) */
    uint8_t *k, *v;
    size_t bytes;
};
struct exec {
    struct exec_config c;
    struct buffer *buf;
    struct state *state;
    float *cos, *sin; /* (n_ctx, n_rot / 2), valid below rope_ready */
    uint32_t rope_ready;
    uint8_t *scratch; /* attention, per thread */
    size_t scratch_bytes;
    int n_scratch;
    struct ahead_layer *ahead; /* by op, of OP_MOE_CALL */
    struct ahead_space guess;
    uint32_t *likely; /* (AHEAD_TOKENS, top_k) */
    /* the step */
    const struct step *s;
    struct team *team;
    uint64_t n_steps;
    uint8_t *plan; /* by op: bit 0 the team works on it, bit 1 meet before it */
    uint32_t plan_tokens, plan_out, plan_keys;
    exec_dump_fn *dump;
    void *dump_arg;
    float *keep; /* rows of the layer in work, for dumps */
};
enum { PLAN_TEAM = 1, PLAN_MEET = 2 };

uint64_t exec_kv_bytes(const struct program *p, enum kv_type kv, uint64_t n_ctx)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < p->n_states; i++)
        n += (kv_bytes(kv, p->state[i].k_width) + kv_bytes(kv, p->state[i].v_width)) * n_ctx;
    return n;
}

struct exec_needs exec_needs(const struct program *p, enum kv_type kv)
{
    struct exec_needs n = {.position = exec_kv_bytes(p, kv, 1) + p->n_rot / 2 * 2 * sizeof(float)};

    for (uint32_t i = 0; i < p->n_buffers; i++) {
        const struct prog_buffer *b = &p->buffer[i];
        uint64_t one = (uint64_t)b->width * 4;
        for (int f = 0; f < N_FORMS; f++)
            if (f != ACT_F32 && (b->forms >> f & 1))
                one += act_stride(f, b->width);
        *(b->rows ? &n.row : &n.token) += one;
    }
    return n;
}

static uint32_t rows_of(const struct exec *x, uint32_t buf)
{
    return x->c.prog->buffer[buf].rows ? x->c.max_out : x->c.max_tokens;
}

static void *zeroed(size_t bytes)
{
    void *p = NULL;

    if (posix_memalign(&p, 64, bytes ? bytes : 64))
        return NULL;
    memset(p, 0, bytes);
    return p;
}

/* Large and touched as the context grows: anonymous pages, not a memset. */
static uint8_t *pages(size_t bytes)
{
    void *p = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

int exec_open(const struct exec_config *c, struct exec **out, struct err *e)
{
    const struct program *p = c->prog;
    struct exec *x = calloc(1, sizeof *x);
    size_t rope = (size_t)c->n_ctx * (p->n_rot / 2) * sizeof(float);

    if (!x)
        return err_set(e, -ENOMEM, "no memory for the trunk");
    x->c = *c;
    x->buf = calloc(p->n_buffers + 1, sizeof *x->buf);
    x->state = calloc(p->n_states + 1, sizeof *x->state);
    x->plan = calloc(p->n_ops + 1, 1);
    x->ahead = calloc(p->n_ops + 1, sizeof *x->ahead);
    x->likely = malloc(AHEAD_TOKENS * (p->top_k + 1) * sizeof *x->likely);
    x->cos = (float *)pages(rope);
    x->sin = (float *)pages(rope);
    if (!x->buf || !x->state || !x->plan || !x->cos || !x->sin || !x->ahead || !x->likely ||
        ahead_space(p, &x->guess))
        goto no_memory;
    for (uint32_t i = 0; i < p->n_ops; i++)
        if (p->op[i].kind == OP_MOE_CALL)
            x->ahead[i] = ahead_find(p, i);
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        const struct prog_buffer *b = &p->buffer[i];
        x->buf[i].data = zeroed((size_t)rows_of(x, i) * b->width * 4);
        if (!x->buf[i].data)
            goto no_memory;
        for (int f = 0; f < N_FORMS; f++) {
            if (!(b->forms >> f & 1) || f == ACT_F32)
                continue;
            x->buf[i].form_stride[f] = act_stride(f, b->width);
            x->buf[i].form[f] = zeroed(rows_of(x, i) * x->buf[i].form_stride[f]);
            if (!x->buf[i].form[f])
                goto no_memory;
        }
    }
    for (uint32_t i = 0; i < p->n_states; i++) {
        struct state *st = &x->state[i];
        size_t k = kv_bytes(c->kv, p->state[i].k_width), v = kv_bytes(c->kv, p->state[i].v_width);
        st->bytes = (k + v) * c->n_ctx * c->n_seqs;
        st->k = pages(st->bytes);
        if (!st->k)
            goto no_memory;
        st->v = st->k + k * c->n_ctx * c->n_seqs;
    }
    *out = x;
    return 0;
no_memory:
    exec_close(x);
    return err_set(e, -ENOMEM, "no memory for the trunk's buffers and a context of %u tokens", c->n_ctx);
}

void exec_close(struct exec *x)
{
    const struct program *p;

    if (!x)
        return;
    p = x->c.prog;
    size_t rope = (size_t)x->c.n_ctx * (p->n_rot / 2) * sizeof(float);
    for (uint32_t i = 0; x->buf && i < p->n_buffers; i++) {
        free(x->buf[i].data);
        for (int f = 0; f < N_FORMS; f++)
            free(x->buf[i].form[f]);
    }
    for (uint32_t i = 0; x->state && i < p->n_states; i++)
        if (x->state[i].k)
            munmap(x->state[i].k, x->state[i].bytes ? x->state[i].bytes : 1);
    if (x->cos)
        munmap(x->cos, rope ? rope : 1);
    if (x->sin)
        munmap(x->sin, rope ? rope : 1);
    free(x->buf);
    free(x->state);
    free(x->plan);
    free(x->ahead);
    free(x->likely);
    ahead_free(&x->guess);
    free(x->scratch);
    free(x->keep);
    free(x);
}

void exec_dump(struct exec *x, exec_dump_fn *fn, void *arg)
{
    x->dump = fn;
    x->dump_arg = arg;
    x->plan_tokens = 0; /* the plan is made anew */
}

uint64_t exec_steps(const struct exec *x)
{
    return x->n_steps;
}

/* ---- one operation: rows [r0, r1) of its range are this thread's ---- */

struct part {
    uint32_t thread, n;
};
static void cut(uint32_t n, struct part p, uint32_t step, uint32_t *a, uint32_t *b)
{
    *a = (uint32_t)((uint64_t)n * p.thread / p.n) / step * step;
    *b = p.thread + 1 == p.n ? n : (uint32_t)((uint64_t)n * (p.thread + 1) / p.n) / step * step;
}

static float *row_f32(const struct exec *x, uint32_t buf, uint32_t row)
{
    return (float *)x->buf[buf].data + (size_t)row * x->c.prog->buffer[buf].width;
}
static uint32_t live_rows(const struct exec *x, uint32_t buf)
{
    return x->c.prog->buffer[buf].rows ? x->s->n_out : x->s->n_tokens;
}

static void run_embed(struct exec *x, const struct op *op, struct part p)
{
    const struct prog_weight *w = &x->c.prog->weight[op->w];
    uint32_t a, b;

    cut(x->s->n_tokens, p, 1, &a, &b);
    for (uint32_t t = a; t < b; t++)
        dequant_row(w->type, x->c.weight[op->w] + x->s->token[t].id * w->row_bytes, w->cols,
                    row_f32(x, op->out, t));
}

static void run_prepare(struct exec *x, const struct op *op, struct part p)
{
    struct buffer *buf = &x->buf[op->in[0]];
    uint32_t a, b, form = op->n[0];

    if (form == ACT_F32)
        return; /* the buffer itself */
    cut(live_rows(x, op->in[0]), p, 1, &a, &b);
    for (uint32_t t = a; t < b; t++)
        act_prepare(form, row_f32(x, op->in[0], t), x->c.prog->buffer[op->in[0]].width,
                    buf->form[form] + t * buf->form_stride[form]);
}

static void run_matmul(struct exec *x, const struct op *op, struct part p)
{
    const struct prog_weight *w = &x->c.prog->weight[op->w];
    const struct buffer *in = &x->buf[op->in[0]];
    uint32_t a, b, n = live_rows(x, op->in[0]), ld = x->c.prog->buffer[op->out].width;
    const void *acts = op->n[0] == ACT_F32 ? in->data : in->form[op->n[0]];
    size_t stride =
        op->n[0] == ACT_F32 ? x->c.prog->buffer[op->in[0]].width * sizeof(float) : in->form_stride[op->n[0]];
    float *y = x->buf[op->out].data;

    cut(w->rows, p, 8, &a, &b);
    if (a >= b || !n)
        return;
    matmul(w->type, x->c.weight[op->w], w->row_bytes, w->cols, a, b, acts, stride, NULL, n, y + a, ld);
    if (w->scale == PROG_NONE && w->bias == PROG_NONE)
        return;
    for (uint32_t t = 0; t < n; t++)
        product_finish(y + (size_t)t * ld + a, b - a,
                      w->scale == PROG_NONE ? NULL : (const float *)x->c.weight[w->scale],
                      w->bias == PROG_NONE ? NULL : (const float *)x->c.weight[w->bias] + a);
}

static void run_rms_norm(struct exec *x, const struct op *op, struct part p)
{
    uint32_t a, b;

    cut(live_rows(x, op->out), p, 1, &a, &b);
    for (uint32_t t = a; t < b; t++)
        for (uint32_t i = 0; i < op->n[1]; i++)
            rms_norm(row_f32(x, op->in[0], t) + i * op->n[0], (const float *)x->c.weight[op->w],
                     row_f32(x, op->out, t) + i * op->n[0], op->n[0], op->f[0]);
}

static void run_rope(struct exec *x, const struct op *op, struct part p)
{
    uint32_t a, b, half = x->c.prog->n_rot / 2;

    cut(x->s->n_tokens, p, 1, &a, &b);
    for (uint32_t t = a; t < b; t++) {
        size_t at = (size_t)x->s->token[t].pos * half;
        for (uint32_t i = 0; i < op->n[0]; i++)
            rope_neox(row_f32(x, op->out, t) + i * op->n[1], op->n[2], x->cos + at, x->sin + at);
    }
}

/* A kv head's rows of one sequence. */
static uint8_t *head_rows(const struct exec *x, uint8_t *base, uint32_t seq, uint32_t n_heads, uint32_t head,
                          size_t row_bytes)
{
    return base + ((size_t)seq * n_heads + head) * x->c.n_ctx * row_bytes;
}

static void run_kv_append(struct exec *x, const struct op *op, struct part p)
{
    const struct state *st = &x->state[op->state];
    const struct prog_state *ps = &x->c.prog->state[op->state];
    uint32_t a, b, hd = ps->head_values, n_heads = ps->k_width / hd;
    size_t row = kv_bytes(x->c.kv, hd);

    cut(x->s->n_tokens, p, 1, &a, &b);
    for (uint32_t t = a; t < b; t++) {
        const struct step_token *tok = &x->s->token[t];
        for (uint32_t h = 0; h < n_heads; h++) {
            kv_store(x->c.kv, row_f32(x, op->in[0], t) + h * hd, hd,
                     head_rows(x, st->k, tok->seq, n_heads, h, row) + tok->pos * row);
            kv_store(x->c.kv, row_f32(x, op->in[1], t) + h * hd, hd,
                     head_rows(x, st->v, tok->seq, n_heads, h, row) + tok->pos * row);
        }
    }
}

/* Work is cut into (kv head, group of tokens); a group's queries share loads of keys and values. */
#define ATTENTION_TOKENS 8
#define ATTENTION_QUERIES 256

static void run_attention(struct exec *x, const struct op *op, struct part p)
{
    const struct state *st = &x->state[op->state];
    uint32_t heads = op->n[0], kv_heads = op->n[1], hd = op->n[2], group = heads / kv_heads;
    uint32_t n_tok = x->s->n_tokens, a, b, per = ATTENTION_QUERIES / group, chunks;
    size_t row = kv_bytes(x->c.kv, hd);
    struct attention_query q[ATTENTION_QUERIES];

    if (per > ATTENTION_TOKENS)
        per = ATTENTION_TOKENS;
    chunks = (n_tok + per - 1) / per;
    cut(chunks * kv_heads, p, 1, &a, &b);
    for (uint32_t w = a; w < b; w++) {
        uint32_t kvh = w / chunks, t0 = w % chunks * per, t1 = t0 + per < n_tok ? t0 + per : n_tok;
        while (t0 < t1) { /* tokens of one sequence at a time */
            uint32_t seq = x->s->token[t0].seq, n = 0;
            struct attention_keys keys = {.type = x->c.kv,
                                          .k = head_rows(x, st->k, seq, kv_heads, kvh, row),
                                          .v = head_rows(x, st->v, seq, kv_heads, kvh, row),
                                          .k_stride = row,
                                          .v_stride = row,
                                          .hd = hd,
                                          .dv = hd,
                                          .scale = op->f[0]};
            for (; t0 < t1 && x->s->token[t0].seq == seq && n + group <= ATTENTION_QUERIES; t0++)
                for (uint32_t h = kvh * group; h < (kvh + 1) * group; h++)
                    q[n++] = (struct attention_query){.q = row_f32(x, op->in[0], t0) + h * hd,
                                                      .out = row_f32(x, op->out, t0) + h * hd,
                                                      .n = x->s->token[t0].pos + 1};
            attention_group(&keys, q, n, x->scratch + p.thread * x->scratch_bytes);
        }
    }
}

static void run_add(struct exec *x, const struct op *op, struct part p)
{
    uint32_t a, b, width = x->c.prog->buffer[op->out].width;

    cut(live_rows(x, op->out), p, 1, &a, &b);
    for (uint32_t t = a; t < b; t++)
        vec_add(row_f32(x, op->out, t), row_f32(x, op->in[0], t), width);
}

static void run_router(struct exec *x, const struct op *op, struct part p)
{
    uint32_t a, b;

    cut(x->s->n_tokens, p, 1, &a, &b);
    for (uint32_t t = a; t < b; t++)
        router_softmax(row_f32(x, op->in[0], t), op->n[0], op->n[1], (int)op->n[2], op->f[0], op->f[1],
                       row_f32(x, op->out, t), (uint32_t *)row_f32(x, op->n[3], t),
                       row_f32(x, op->n[4], t));
}

static void run_pick(struct exec *x, const struct op *op, struct part p)
{
    uint32_t a, b, width = x->c.prog->buffer[op->out].width;

    cut(x->s->n_out, p, 1, &a, &b);
    for (uint32_t i = a; i < b; i++)
        memcpy(row_f32(x, op->out, i), row_f32(x, op->in[0], x->s->out[i]), width * sizeof(float));
}

/* While the workers compute this layer's experts. */
static void foresee(struct exec *x, const struct op *op)
{
    const struct ahead_layer *a = &x->ahead[op - x->c.prog->op];
    uint32_t n = x->s->n_tokens;

    if (!a->norm || n > AHEAD_TOKENS || !moe_foresees(x->c.moe))
        return;
    for (uint32_t t = 0; t < n; t++)
        ahead_choose(x->c.prog, x->c.weight, a, row_f32(x, a->norm->in[0], t), &x->guess,
                     x->likely + (size_t)t * a->router->n[1]);
    moe_foresee(x->c.moe, a->layer, x->likely, n * a->router->n[1]);
}

static void run_op(struct exec *x, const struct op *op, struct part p, int team)
{
    switch ((enum op_kind)op->kind) {
    case OP_EMBED:
        run_embed(x, op, p);
        break;
    case OP_PREPARE:
        run_prepare(x, op, p);
        break;
    case OP_MATMUL:
        run_matmul(x, op, p);
        break;
    case OP_RMS_NORM:
        run_rms_norm(x, op, p);
        break;
    case OP_ROPE:
        run_rope(x, op, p);
        break;
    case OP_KV_APPEND:
        run_kv_append(x, op, p);
        break;
    case OP_ATTENTION:
        run_attention(x, op, p);
        break;
    case OP_ADD:
        run_add(x, op, p);
        break;
    case OP_ROUTER:
        run_router(x, op, p);
        break;
    case OP_MOE_CALL:
        moe_begin(x->c.moe, op->n[0], op->n[1], x->buf[op->in[0]].data, x->buf[op->in[1]].data,
                  x->s->n_tokens);
        foresee(x, op);
        break;
    case OP_MOE_SUM:
        moe_finish(x->c.moe, x->team, (int)p.thread, (int)p.n, team, x->buf[op->in[1]].data,
                   x->buf[op->out].data);
        break;
    case OP_PICK:
        run_pick(x, op, p);
        break;
    case OP_KINDS:
        break;
    }
}

/* ---- the plan ---- */

/* Multiply-adds of an operation in this step, roughly; 0: the leader's alone. */
static uint64_t cost(const struct exec *x, const struct op *op)
{
    const struct program *p = x->c.prog;
    uint64_t t = x->s->n_tokens, width = op->out == PROG_NONE ? 0 : p->buffer[op->out].width;

    switch ((enum op_kind)op->kind) {
    case OP_MATMUL:
        return (uint64_t)p->weight[op->w].rows * p->weight[op->w].cols * live_rows(x, op->in[0]);
    case OP_ATTENTION:
        return 2ull * op->n[0] * op->n[2] * x->plan_keys * t;
    case OP_PREPARE:
        return op->n[0] == ACT_F32 || live_rows(x, op->in[0]) < 2
                   ? 0
                   : 4ull * p->buffer[op->in[0]].width * live_rows(x, op->in[0]);
    case OP_MOE_SUM:
        return t < 2 ? 0 : t * width * p->top_k;
    case OP_EMBED:
    case OP_RMS_NORM:
    case OP_ROPE:
    case OP_ADD:
    case OP_ROUTER:
    case OP_PICK:
        return live_rows(x, op->out) < 2 ? 0 : 4 * width * live_rows(x, op->out);
    case OP_KV_APPEND:
        return t < 2 ? 0 : 8ull * p->state[op->state].k_width * t;
    case OP_MOE_CALL:
    case OP_KINDS:
        break;
    }
    return 0;
}

/* What an operation touches, as bits over buffers and states (folded to 64: a false alarm costs a
 * meeting, never a race). */
static uint64_t bit(uint32_t kind, uint32_t i)
{
    return i == PROG_NONE ? 0 : 1ull << ((i * 2 + kind) % 64);
}
static void touches(const struct op *op, uint64_t *reads, uint64_t *writes)
{
    *reads = bit(0, op->in[0]) | bit(0, op->in[1]);
    *writes = bit(0, op->out);
    switch ((enum op_kind)op->kind) {
    case OP_PREPARE:
        *writes |= bit(0, op->in[0]); /* its forms */
        break;
    case OP_KV_APPEND:
        *writes |= bit(1, op->state);
        break;
    case OP_ATTENTION:
        *reads |= bit(1, op->state);
        break;
    case OP_ROUTER:
        *writes |= bit(0, op->n[3]) | bit(0, op->n[4]);
        break;
    case OP_ADD:
    case OP_ROPE:
        *reads |= bit(0, op->out);
        break;
    default:
        break;
    }
}

/* A meeting stands before an operation that would read what another thread has written since the last
 * one, or write what another has read or written. */
static void make_plan(struct exec *x)
{
    const struct program *p = x->c.prog;
    uint64_t team_w = 0, team_r = 0, lead_w = 0, lead_r = 0;

    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct op *op = &p->op[i];
        int team = team_size(x->team) > 1 && cost(x, op) >= WORTH_SHARING, meet;
        uint64_t r, w;
        touches(op, &r, &w);
        meet = team ? ((r & (team_w | lead_w)) | (w & (team_w | team_r | lead_w | lead_r))) != 0
                    : ((r & team_w) | (w & (team_w | team_r))) != 0;
        if (op->kind == OP_MOE_SUM || op->kind == OP_MOE_CALL)
            meet |= team; /* the call in work belongs to the leader */
        if (x->dump)
            meet = 1;
        if (meet)
            team_w = team_r = lead_w = lead_r = 0;
        if (team) {
            team_w |= w;
            team_r |= r;
        } else {
            lead_w |= w;
            lead_r |= r;
        }
        x->plan[i] = (uint8_t)((team ? PLAN_TEAM : 0) | (meet && team_size(x->team) > 1 ? PLAN_MEET : 0));
    }
}

/* ---- a step ---- */

static void dump_op(struct exec *x, const struct op *op)
{
    const struct program *p = x->c.prog;
    uint32_t n, width;

    if (!op->name[0])
        return;
    if (op->kind == OP_ROUTER) {
        char name[PROG_NAME + 8];
        int stem = (int)strlen(op->name);
        snprintf(name, sizeof name, "%.*s_probs", stem, op->name);
        x->dump(x->dump_arg, name, 0, x->buf[op->out].data, x->s->n_tokens, op->n[0], 0);
        stem -= (int)strlen("router"); /* "L0.router" names L0.experts and L0.weights too */
        snprintf(name, sizeof name, "%.*sexperts", stem, op->name);
        x->dump(x->dump_arg, name, 1, x->buf[op->n[3]].data, x->s->n_tokens, op->n[1], 0);
        snprintf(name, sizeof name, "%.*sweights", stem, op->name);
        x->dump(x->dump_arg, name, 0, x->buf[op->n[4]].data, x->s->n_tokens, op->n[1], 0);
        return;
    }
    n = live_rows(x, op->out);
    width = p->buffer[op->out].width;
    if (op->kind == OP_ROPE || op->kind == OP_ATTENTION) {
        uint32_t hd = op->kind == OP_ROPE ? op->n[1] : op->n[2];
        x->dump(x->dump_arg, op->name, 0, x->buf[op->out].data, n, width / hd, hd);
    } else {
        x->dump(x->dump_arg, op->name, 0, x->buf[op->out].data, n, width, 0);
    }
    if (op->kind == OP_MOE_SUM && x->keep) {
        char name[PROG_NAME + 8];
        snprintf(name, sizeof name, "%.*sexpert_out", (int)(strlen(op->name) - strlen("ffn_out")), op->name);
        x->dump(x->dump_arg, name, 0, x->keep, n, p->top_k, width);
    }
}

static void run_step(void *arg, int thread, int n_threads)
{
    struct exec *x = arg;
    const struct program *p = x->c.prog;
    const struct part alone = {0, 1}, mine = {(uint32_t)thread, (uint32_t)n_threads};

    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct op *op = &p->op[i];
        if (x->plan[i] & PLAN_MEET)
            team_meet(x->team);
        if (x->plan[i] & PLAN_TEAM)
            run_op(x, op, mine, 1);
        else if (thread == 0)
            run_op(x, op, alone, 0);
        if (x->dump && n_threads > 1)
            team_meet(x->team);
        if (x->dump && thread == 0)
            dump_op(x, op);
    }
}

/* scratch for attention grows with the team, which the first step brings */
static void ready_scratch(struct exec *x)
{
    uint32_t hd = 0;

    if (x->n_scratch >= team_size(x->team))
        return;
    for (uint32_t i = 0; i < x->c.prog->n_states; i++)
        if (hd < x->c.prog->state[i].head_values)
            hd = x->c.prog->state[i].head_values;
    free(x->scratch);
    x->scratch_bytes = (attention_group_scratch(ATTENTION_QUERIES, hd) + 63) & ~(size_t)63;
    x->n_scratch = team_size(x->team);
    x->scratch = zeroed(x->scratch_bytes * x->n_scratch);
    if (!x->scratch)
        abort(); /* some hundred kilobytes a thread */
}

const float *exec_step(struct exec *x, struct team *team, const struct step *s)
{
    uint32_t last = 0, keys;

    x->s = s;
    x->team = team;
    ready_scratch(x);
    for (uint32_t t = 0; t < s->n_tokens; t++)
        if (last < s->token[t].pos)
            last = s->token[t].pos;
    while (x->rope_ready <= last && x->rope_ready < x->c.n_ctx) { /* rule 23: once a position */
        uint32_t half = x->c.prog->n_rot / 2, end = x->rope_ready + ROPE_BLOCK;
        for (; x->rope_ready < end && x->rope_ready < x->c.n_ctx; x->rope_ready++)
            rope_row(x->c.prog->rope_base, x->c.prog->n_rot, x->rope_ready,
                     x->cos + (size_t)x->rope_ready * half, x->sin + (size_t)x->rope_ready * half);
    }
    keys = (last + 256) / 256 * 256; /* the plan changes with the length, but not every token */
    if (s->n_tokens != x->plan_tokens || s->n_out != x->plan_out || keys != x->plan_keys) {
        x->plan_tokens = s->n_tokens;
        x->plan_out = s->n_out;
        x->plan_keys = keys;
        make_plan(x);
    }
    if (x->dump) {
        free(x->keep);
        x->keep = malloc((size_t)s->n_tokens * x->c.prog->top_k * x->c.prog->n_embd * sizeof(float) + 1);
        moe_keep_rows(x->c.moe, x->keep);
    }
    if (x->c.moe)
        moe_step(x->c.moe, s->n_tokens);
    team_do(team, run_step, x);
    x->n_steps++;
    return x->buf[x->c.prog->logits].data;
}
