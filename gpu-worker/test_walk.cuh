/* For tests of the trunk on a card: a model's weights here and there, and a plain walk of its program by the
 * CPU kernels, operation by operation. */
#pragma once
#include <fcntl.h>
#include <unistd.h>

#include "gpu-worker/run_cuda.h"
#include "tests/cuda.h"
extern "C" {
#include "coordinator/model/model.h"
#include "coordinator/trunk/arch/arch.h"
#include "kernels/cpu.h"
#include "kernels/expert/expert.h"
#include "kernels/func/nasty.h"
#include "kernels/matmul/finish.h"
#include "kernels/matmul/matmul.h"
#include "kernels/moe/moe.h"
#include "kernels/norm/norm.h"
#include "kernels/quantise/quantise.h"
#include "kernels/rope/rope.h"
#include "kernels/topk/topk.h"
}
#include "kernels/topk/topk_cuda.h"

enum { MOST_K = 64 };

/* ---- a model's weights, here and on the card ---- */

struct loaded {
    struct model *m;
    struct program *prog;
    uint8_t **weight;    /* host, by program weight */
    const void **card;   /* the same on the card */
    uint8_t **expert;    /* host, by layer * 3 + matrix: all experts, `bytes` apart */
    void **card_experts; /* by layer * 3 + matrix */
    struct run_cuda_layer *layer;
};

static void stop(const struct err *e)
{
    printf("%s\n", e->msg);
    exit(1);
}

static uint8_t *read_bytes(const struct model *m, uint32_t shard, uint64_t offset, uint64_t bytes)
{
    uint8_t *p = (uint8_t *)malloc(bytes + 64);

    if (!p || pread(gguf_shard_fd(m->g, shard), p, bytes, (off_t)offset) != (ssize_t)bytes) {
        printf("%s: cannot read\n", m->path);
        exit(1);
    }
    return p;
}

static void load_layer(struct loaded *l, uint32_t i)
{
    const struct model_layer *ml = &l->m->layer[i];
    uint32_t n = l->m->n_experts;
    struct expert_slot *slots = (struct expert_slot *)calloc(n, sizeof *slots);
    struct run_cuda_layer *out = &l->layer[i];

    out->shape.n_embd = l->m->n_embd;
    out->shape.n_ff = l->m->n_ff;
    for (int k = 0; k < EXPERT_MATS; k++) {
        const struct model_matrix *x = &ml->expert[k];
        uint64_t pitch = (x->bytes + 31) & ~(uint64_t)15; /* on the card */
        uint8_t *all = read_bytes(l->m, x->shard, x->file_offset, x->stride * (n - 1) + x->bytes);
        uint8_t *at = (uint8_t *)cuda_room(pitch * n);

        for (uint32_t e = 0; e < n; e++) {
            memmove(all + e * x->bytes, all + e * x->stride, x->bytes);
            CUDA_OK(
                cudaMemcpy(at + e * pitch, all + e * x->bytes, x->bytes, cudaMemcpyHostToDevice));
            slots[e].w[k] = at + e * pitch;
            slots[e].scale[k] = 1.0f;
        }
        if (x->scale != MODEL_NONE) {
            const struct model_tensor *t = &l->m->tensor[x->scale];
            float *s = (float *)read_bytes(l->m, t->shard, t->file_offset, t->bytes);
            for (uint32_t e = 0; e < n; e++)
                slots[e].scale[k] = s[e];
            free(s);
        }
        out->shape.type[k] = x->type;
        out->shape.row_bytes[k] = x->row_bytes;
        l->expert[i * EXPERT_MATS + k] = all;
        l->card_experts[i * EXPERT_MATS + k] = at;
    }
    out->slot = (const struct expert_slot *)cuda_copy(slots, n * sizeof *slots);
    free(slots);
}

static void load(const char *path, struct loaded *l)
{
    struct err e = {};

    memset(l, 0, sizeof *l);
    if (model_open(path, 0, &l->m, &e) || arch_program(l->m, &l->prog, &e))
        stop(&e);
    l->weight = (uint8_t **)calloc(l->prog->n_weights, sizeof *l->weight);
    l->card = (const void **)calloc(l->prog->n_weights, sizeof *l->card);
    for (uint32_t i = 0; i < l->prog->n_weights; i++) {
        const struct model_tensor *t = &l->m->tensor[l->prog->weight[i].tensor];
        l->weight[i] = read_bytes(l->m, t->shard, t->file_offset, t->bytes);
        l->card[i] = cuda_copy(l->weight[i], t->bytes);
    }
    l->expert = (uint8_t **)calloc(l->m->n_layers * EXPERT_MATS, sizeof *l->expert);
    l->card_experts = (void **)calloc(l->m->n_layers * EXPERT_MATS, sizeof *l->card_experts);
    l->layer = (struct run_cuda_layer *)calloc(l->m->n_layers, sizeof *l->layer);
    for (uint32_t i = 0; i < l->m->n_layers; i++)
        load_layer(l, i);
}

static void unload(struct loaded *l)
{
    for (uint32_t i = 0; i < l->prog->n_weights; i++) {
        free(l->weight[i]);
        CUDA_OK(cudaFree((void *)l->card[i]));
    }
    for (uint32_t i = 0; i < l->m->n_layers * EXPERT_MATS; i++) {
        free(l->expert[i]);
        CUDA_OK(cudaFree(l->card_experts[i]));
    }
    for (uint32_t i = 0; i < l->m->n_layers; i++)
        CUDA_OK(cudaFree((void *)l->layer[i].slot));
    free(l->weight);
    free(l->card);
    free(l->expert);
    free(l->card_experts);
    free(l->layer);
    program_free(l->prog);
    model_close(l->m);
}

/* ---- the plain walk ---- */

struct walk {
    const struct loaded *l;
    enum kv_type kv;
    uint32_t n_ctx, n_seqs;
    float **buf;      /* max_tokens rows */
    uint8_t **k, **v; /* by state: (seq, kv head, n_ctx, values) */
    float *rows;      /* of the call: (tokens, places, n_embd) */
    uint32_t used;
    const struct step *s;
};

static void walk_open(struct walk *w, const struct loaded *l, uint32_t max_tokens, uint32_t n_ctx,
                      uint32_t n_seqs, enum kv_type kv)
{
    const struct program *p = l->prog;

    memset(w, 0, sizeof *w);
    w->l = l;
    w->kv = kv;
    w->n_ctx = n_ctx;
    w->n_seqs = n_seqs;
    w->buf = (float **)calloc(p->n_buffers, sizeof *w->buf);
    for (uint32_t i = 0; i < p->n_buffers; i++)
        w->buf[i] = (float *)calloc((size_t)max_tokens * p->buffer[i].width, 4);
    w->k = (uint8_t **)calloc(p->n_states, sizeof *w->k);
    w->v = (uint8_t **)calloc(p->n_states, sizeof *w->v);
    for (uint32_t i = 0; i < p->n_states; i++) {
        w->k[i] = (uint8_t *)calloc((size_t)n_ctx * n_seqs, kv_bytes(kv, p->state[i].k_width));
        w->v[i] = (uint8_t *)calloc((size_t)n_ctx * n_seqs, kv_bytes(kv, p->state[i].v_width));
    }
    w->rows = (float *)calloc((size_t)max_tokens * p->top_k * p->n_embd, 4);
}

static void walk_close(struct walk *w)
{
    for (uint32_t i = 0; i < w->l->prog->n_buffers; i++)
        free(w->buf[i]);
    for (uint32_t i = 0; i < w->l->prog->n_states; i++) {
        free(w->k[i]);
        free(w->v[i]);
    }
    free(w->buf);
    free(w->k);
    free(w->v);
    free(w->rows);
}

static uint32_t width(const struct walk *w, uint32_t buf)
{
    return w->l->prog->buffer[buf].width;
}
static float *row(const struct walk *w, uint32_t buf, uint32_t t)
{
    return w->buf[buf] + (size_t)t * width(w, buf);
}
static uint32_t live(const struct walk *w, uint32_t buf)
{
    return w->l->prog->buffer[buf].rows ? w->s->n_out : w->s->n_tokens;
}

static void walk_matmul(struct walk *w, const struct op *op, uint32_t t)
{
    const struct prog_weight *pw = &w->l->prog->weight[op->w];
    size_t n = width(w, op->in[0]), stride = act_stride((enum act_form)op->n[0], n);
    void *act = aligned_alloc(64, stride);

    act_prepare((enum act_form)op->n[0], row(w, op->in[0], t), n, act);
    matmul(pw->type, w->l->weight[op->w], pw->row_bytes, pw->cols, 0, pw->rows, act, stride, NULL,
           1, row(w, op->out, t), width(w, op->out));
    if (pw->scale != PROG_NONE || pw->bias != PROG_NONE)
        product_finish(row(w, op->out, t), pw->rows,
                       pw->scale == PROG_NONE ? NULL : (const float *)w->l->weight[pw->scale],
                       pw->bias == PROG_NONE ? NULL : (const float *)w->l->weight[pw->bias]);
    free(act);
}

static uint8_t *head(const struct walk *w, uint8_t *base, uint32_t seq, uint32_t heads, uint32_t h,
                     size_t bytes)
{
    return base + ((size_t)seq * heads + h) * w->n_ctx * bytes;
}

static void walk_append(struct walk *w, const struct op *op, uint32_t t)
{
    const struct prog_state *st = &w->l->prog->state[op->state];
    uint32_t hd = st->head_values, heads = st->k_width / hd;
    const struct step_token *tok = &w->s->token[t];
    size_t bytes = kv_bytes(w->kv, hd);

    for (uint32_t h = 0; h < heads; h++) {
        kv_store(w->kv, row(w, op->in[0], t) + h * hd, hd,
                 head(w, w->k[op->state], tok->seq, heads, h, bytes) + tok->pos * bytes);
        kv_store(w->kv, row(w, op->in[1], t) + h * hd, hd,
                 head(w, w->v[op->state], tok->seq, heads, h, bytes) + tok->pos * bytes);
    }
}

static void walk_attention(struct walk *w, const struct op *op, uint32_t t)
{
    uint32_t heads = op->n[0], kv_heads = op->n[1], hd = op->n[2];
    const struct step_token *tok = &w->s->token[t];
    size_t bytes = kv_bytes(w->kv, hd);
    void *scratch = aligned_alloc(64, (attention_scratch(hd) + 63) & ~(size_t)63);

    for (uint32_t h = 0; h < heads; h++) {
        uint32_t kvh = h / (heads / kv_heads);
        attention(w->kv, row(w, op->in[0], t) + h * hd,
                  head(w, w->k[op->state], tok->seq, kv_heads, kvh, bytes),
                  head(w, w->v[op->state], tok->seq, kv_heads, kvh, bytes), bytes, bytes,
                  tok->pos + 1, hd, hd, op->f[0], row(w, op->out, t) + h * hd, scratch);
    }
    free(scratch);
}

static struct expert_part part_of(const struct walk *w, uint32_t layer, int k, uint32_t e)
{
    const struct model_matrix *x = &w->l->m->layer[layer].expert[k];
    struct expert_part p = {x->type, w->l->expert[layer * EXPERT_MATS + k] + e * x->bytes,
                            x->row_bytes, 1.0f};

    if (x->scale != MODEL_NONE) {
        struct expert_slot slot; /* the factor as the card has it */
        cuda_back(&slot, w->l->layer[layer].slot + e, sizeof slot);
        p.scale = slot.scale[k];
    }
    return p;
}

static void walk_experts(struct walk *w, const struct op *op, uint32_t t)
{
    uint32_t layer = op->n[0], n = w->l->m->n_embd, n_ff = w->l->m->n_ff;
    const int32_t *ids = (const int32_t *)row(w, op->in[1], t);
    const struct model_matrix *x = w->l->m->layer[layer].expert;
    void *act[3];
    float *h = (float *)malloc(n_ff * 4), *tmp = (float *)malloc(2 * n_ff * 4);

    w->used = op->n[1];
    for (int k = 0; k < EXPERT_MATS; k++)
        act[k] =
            aligned_alloc(64, act_stride(type_info(x[k].type)->act, k == EXPERT_DOWN ? n_ff : n));
    for (int k = 0; k < 2; k++)
        act_prepare(type_info(x[k].type)->act, row(w, op->in[0], t), n, act[k]);
    for (uint32_t p = 0; p < w->used; p++) {
        struct expert_part gate = part_of(w, layer, 0, ids[p]), up = part_of(w, layer, 1, ids[p]),
                           down = part_of(w, layer, 2, ids[p]);
        expert_gate_up(&gate, &up, n, 0, n_ff, act[0], 64, act[1], 64, NULL, 1, 0.0f, tmp, h, n_ff);
        act_prepare(type_info(x[2].type)->act, h, n_ff, act[2]);
        expert_down(&down, n_ff, 0, n, act[2], 64, 1, w->rows + ((size_t)t * w->used + p) * n, n);
    }
    for (int k = 0; k < EXPERT_MATS; k++)
        free(act[k]);
    free(h);
    free(tmp);
}

static void walk_op(struct walk *w, const struct op *op, uint32_t t)
{
    const struct program *p = w->l->prog;
    const float *of[MOST_K];

    switch ((enum op_kind)op->kind) {
    case OP_EMBED:
        dequant_row(p->weight[op->w].type,
                    w->l->weight[op->w] + w->s->token[t].id * p->weight[op->w].row_bytes,
                    p->weight[op->w].cols, row(w, op->out, t));
        break;
    case OP_MATMUL:
        walk_matmul(w, op, t);
        break;
    case OP_RMS_NORM:
        for (uint32_t i = 0; i < op->n[1]; i++)
            rms_norm(row(w, op->in[0], t) + i * op->n[0], (const float *)w->l->weight[op->w],
                     row(w, op->out, t) + i * op->n[0], op->n[0], op->f[0]);
        break;
    case OP_ROPE: {
        float c[1024], s[1024];
        rope_row(p->rope_base, p->n_rot, w->s->token[t].pos, c, s);
        for (uint32_t h = 0; h < op->n[0]; h++)
            rope_neox(row(w, op->out, t) + h * op->n[1], op->n[2], c, s);
        break;
    }
    case OP_KV_APPEND:
        walk_append(w, op, t);
        break;
    case OP_ATTENTION:
        walk_attention(w, op, t);
        break;
    case OP_ADD:
        vec_add(row(w, op->out, t), row(w, op->in[0], t), width(w, op->out));
        break;
    case OP_ROUTER:
        router_softmax(row(w, op->in[0], t), op->n[0], op->n[1], (int)op->n[2], op->f[0], op->f[1],
                       row(w, op->out, t), (uint32_t *)row(w, op->n[3], t), row(w, op->n[4], t));
        break;
    case OP_MOE_CALL:
        walk_experts(w, op, t);
        break;
    case OP_MOE_SUM:
        for (uint32_t k = 0; k < w->used; k++)
            of[k] = w->rows + ((size_t)t * w->used + k) * p->n_embd;
        moe_sum(row(w, op->in[1], t), of, w->used, row(w, op->out, t), p->n_embd);
        break;
    case OP_PICK:
        memcpy(row(w, op->out, t), row(w, op->in[0], w->s->out[t]), width(w, op->out) * 4);
        break;
    case OP_PREPARE:
    default:
        break;
    }
}

static void walk_all(struct walk *w, const struct op *op)
{
    uint32_t n = op->kind == OP_PICK || op->kind == OP_RMS_NORM || op->kind == OP_MATMUL ||
                         op->kind == OP_ADD
                     ? live(w, op->out)
                     : w->s->n_tokens;

    for (uint32_t t = 0; t < n; t++)
        walk_op(w, op, t);
}

static const float *walk_step(struct walk *w, const struct step *s)
{
    w->s = s;
    for (uint32_t i = 0; i < w->l->prog->n_ops; i++)
        walk_all(w, &w->l->prog->op[i]);
    return w->buf[w->l->prog->logits];
}
