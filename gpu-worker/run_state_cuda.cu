/* What sequences keep on the card, and launches of the operations that read and write it. Which version a step
 * reads is in the record (coordinator/trunk/exec/versions.h), so a recorded list serves every step. */
#include <string.h>

#include "gpu-worker/run_cuda.cuh"
#include "kernels/attention/attention_cuda.h"
#include "kernels/conv/conv_cuda.h"
#include "kernels/delta/delta_cuda.h"
#include "kernels/index/index_cuda.h"

static_assert(ATTENTION_LIST_ALL == LIST_ALL && INDEX_LIST_ALL == LIST_ALL, "one word for all");

/* ---- places ---- */

static void lay_out_kv(struct run_cuda *x, const struct prog_state *s, struct attention_kv *kv)
{
    uint64_t rows = (uint64_t)x->c.n_ctx * x->c.n_seqs;

    kv->type = x->c.kv;
    kv->n_ctx = x->c.n_ctx;
    kv->hd = kv->dv = s->head_values;
    kv->kv_heads = s->k_width / s->head_values;
    kv->k = run_cuda_take(x, kv_bytes(x->c.kv, s->k_width) * rows);
    kv->v = s->v_width ? run_cuda_take(x, kv_bytes(x->c.kv, s->v_width) * rows) : kv->k;
    kv->pos = x->pos;
    kv->seq = x->seq;
}

static size_t kept_floats(const struct program *p, const struct prog_state *s)
{
    return p->rollback ? (p->rollback + 1) * s->heads * delta_kept_floats(s->k_width, s->v_width, s->decay) : 0;
}

/* Of state i in a slot: a version, and what tokens keep. */
static size_t saved_floats(const struct run_cuda *x, uint32_t i)
{
    return x->c.prog->state[i].draft ? 0 : x->state[i].version_floats + x->state[i].kept_floats;
}

void states_lay_out(struct run_cuda *x)
{
    const struct program *p = x->c.prog;

    x->saved_floats = 0;
    for (uint32_t i = 0; i < p->n_states; i++) {
        const struct prog_state *s = &p->state[i];
        struct state_place *at = &x->state[i];

        memset(at, 0, sizeof *at);
        if (s->kind == STATE_KV) {
            lay_out_kv(x, s, &at->kv);
            continue;
        }
        if (s->kind == STATE_POOLS) {
            uint32_t n = x->c.n_ctx / s->head_values;
            x->n_pools = n > x->n_pools ? n : x->n_pools;
            at->seq_floats = (size_t)n * s->k_width;
        } else {
            at->version_floats = s->kind == STATE_TAIL ? (size_t)state_tail_rows(p, s) * s->k_width
                                                       : (size_t)s->heads * s->k_width * s->v_width;
            at->kept_floats = s->kind == STATE_MATRIX ? kept_floats(p, s) : 0;
            at->seq_floats = 2 * (at->version_floats + at->kept_floats);
        }
        at->base = (float *)run_cuda_take(x, at->seq_floats * x->c.n_seqs * sizeof(float));
        x->saved_floats += saved_floats(x, i);
    }
    x->saved = (float *)run_cuda_take(x, x->saved_floats * x->c.n_saved * sizeof(float));
    x->scores = (float *)run_cuda_take(x, (uint64_t)INDEX_LIST_TOKENS * x->n_pools * sizeof(float));
}

/* What tokens keep lies beside the version that they made, as the tail's does. */
cudaError_t states_copy(struct run_cuda *x, const struct version_copy *c, uint32_t slot, int back)
{
    float *at = x->saved + slot * x->saved_floats;
    cudaError_t rc = cudaSuccess;

    for (uint32_t i = 0; c->any && !rc && i < x->c.prog->n_states; i++) {
        const struct state_place *s = &x->state[i];
        uint32_t version = x->c.prog->state[i].kind == STATE_TAIL ? c->tail : c->matrix;
        float *of = s->base + c->seq * s->seq_floats, *kept = of + 2 * s->version_floats + c->tail * s->kept_floats;

        if (!saved_floats(x, i))
            continue;
        of += version * s->version_floats;
        rc = cudaMemcpyAsync(back ? of : at, back ? at : of, s->version_floats * sizeof *at, cudaMemcpyDeviceToDevice,
                             x->stream);
        at += s->version_floats;
        if (!rc && s->kept_floats && c->kept)
            rc = cudaMemcpyAsync(back ? kept : at, back ? at : kept, s->kept_floats * sizeof *at,
                                 cudaMemcpyDeviceToDevice, x->stream);
        at += s->kept_floats;
    }
    return rc;
}

/* ---- operations ---- */

static void do_append(struct run_cuda *x, const struct op *op, struct pass p)
{
    struct attention_kv kv = x->state[op->state].kv;
    const float *v = op->in[1] == PROG_NONE ? NULL : x->buf[op->in[1]].data;

    if (!v)
        kv.dv = 0;
    kv_append_cuda(&kv, x->buf[op->in[0]].data, width_of(x, op->in[0]), v, v ? width_of(x, op->in[1]) : 0, p.T,
                   x->stream);
}

static void do_attention(struct run_cuda *x, const struct op *op, struct pass p)
{
    struct attention_kv kv = x->state[op->state].kv;

    if (op->in[1] != PROG_NONE) {
        kv.list = (const uint32_t *)x->buf[op->in[1]].data;
        kv.list_ld = width_of(x, op->in[1]);
    }
    attention_cuda(&kv, x->buf[op->in[0]].data, width_of(x, op->in[0]), op->n[0], op->f[0], x->buf[op->out].data,
                   width_of(x, op->out), p.T, x->attention_scratch, x->stream);
}

static struct tails_cuda tails_of(const struct run_cuda *x, uint32_t state, struct pass p)
{
    const struct prog_state *s = &x->c.prog->state[state];
    struct tails_cuda t = {};

    t.base = x->state[state].base;
    t.seq_floats = x->state[state].seq_floats;
    t.keep = state_tail_rows(x->c.prog, s);
    t.n = s->k_width;
    t.run = x->run;
    t.n_runs = x->n_runs;
    t.most_runs = most_runs(x, p);
    return t;
}

static void do_conv(struct run_cuda *x, const struct op *op, struct pass p)
{
    struct conv_runs_cuda c = {};

    c.tails = tails_of(x, op->state, p);
    c.x = x->buf[op->in[0]].data;
    c.w = vector_of(x, op->w);
    c.y = x->buf[op->out].data;
    c.width = op->n[0];
    c.gap = op->n[1];
    c.n_tokens = p.T;
    silu_conv_runs_cuda(&c, x->stream);
    tails_write_cuda(&c.tails, c.x, 0, c.tails.n, x->stream);
}

static void do_delta(struct run_cuda *x, const struct op *op, struct pass p)
{
    const struct prog_state *s = &x->c.prog->state[op->state];
    struct delta_runs_cuda d = {};

    d.state = x->state[op->state].base;
    d.seq_floats = x->state[op->state].seq_floats;
    d.heads = s->heads;
    d.k_heads = s->k_heads;
    d.n_k = s->k_width;
    d.n_v = s->v_width;
    d.most_kept = x->c.prog->rollback ? x->c.prog->rollback + 1 : 0;
    d.run = x->run;
    d.n_runs = x->n_runs;
    d.most_runs = most_runs(x, p);
    d.q = x->buf[op->in[0]].data;
    d.key = x->buf[op->in[1]].data;
    d.value = x->buf[op->n[0]].data;
    d.a = x->buf[op->n[1]].data;
    d.beta = x->buf[op->n[2]].data;
    d.a_one = s->decay == 1;
    d.o = x->buf[op->out].data;
    delta_runs_cuda(&d, x->stream);
}

static void do_mean_pool(struct run_cuda *x, const struct op *op, struct pass p)
{
    const struct prog_state *s = &x->c.prog->state[op->state];
    struct mean_runs_cuda q = {};

    q.tails = tails_of(x, op->n[0], p);
    q.key = x->buf[op->in[0]].data;
    q.norm = vector_of(x, op->w);
    q.eps = op->f[0];
    q.cos = x->cos;
    q.sin = x->sin;
    q.half = x->c.prog->n_rot / 2;
    q.pools = x->state[op->state].base;
    q.seq_floats = x->state[op->state].seq_floats;
    q.count = s->head_values;
    q.d = s->k_width;
    q.n_tokens = p.T;
    mean_runs_cuda(&q, x->stream);
    tails_write_cuda(&q.tails, q.key, 0, q.d, x->stream);
}

static void do_pool(struct run_cuda *x, const struct op *op, struct pass p)
{
    const struct prog_state *s = &x->c.prog->state[op->state];
    struct pools_runs_cuda q = {};

    q.tails = tails_of(x, op->n[0], p);
    q.key = x->buf[op->in[0]].data;
    q.gate = x->buf[op->in[1]].data;
    q.bias = vector_of(x, op->w);
    q.pools = x->state[op->state].base;
    q.seq_floats = x->state[op->state].seq_floats;
    q.count = s->head_values;
    q.d = s->k_width;
    q.n_tokens = p.T;
    pools_runs_cuda(&q, x->stream);
    tails_write_cuda(&q.tails, q.key, 0, q.d, x->stream);
    tails_write_cuda(&q.tails, q.gate, q.d, q.d, x->stream);
}

static void do_select(struct run_cuda *x, const struct op *op, struct pass p)
{
    const struct prog_state *s = &x->c.prog->state[op->state];
    struct index_lists_cuda l = {};

    l.q = x->buf[op->in[0]].data;
    l.w = op->in[1] == PROG_NONE ? NULL : x->buf[op->in[1]].data;
    l.pools = x->state[op->state].base;
    l.seq_floats = x->state[op->state].seq_floats;
    l.pos = x->pos;
    l.seq = x->seq;
    l.n_heads = op->n[0];
    l.d = s->k_width;
    l.count = s->head_values;
    l.most = op->n[1];
    l.n_tokens = p.T;
    l.scale = op->f[0];
    l.score = x->scores;
    l.lds = x->n_pools;
    l.list = (uint32_t *)x->buf[op->out].data;
    l.ldl = width_of(x, op->out);
    index_lists_cuda(&l, x->stream);
}

int run_state(struct run_cuda *x, const struct op *op, struct pass p)
{
    switch ((enum op_kind)op->kind) {
    case OP_KV_APPEND:
        do_append(x, op, p);
        break;
    case OP_ATTENTION:
        do_attention(x, op, p);
        break;
    case OP_CONV:
        do_conv(x, op, p);
        break;
    case OP_DELTA:
        do_delta(x, op, p);
        break;
    case OP_POOL:
        (op->in[1] == PROG_NONE ? do_mean_pool : do_pool)(x, op, p);
        break;
    case OP_SELECT:
        do_select(x, op, p);
        break;
    default:
        return NOT_MINE;
    }
    return cudaGetLastError();
}
