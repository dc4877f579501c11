/* For tests of the trunk on a card: a model's weights here and there, and a walk of its program by the CPU's
 * executor, operation by operation, with experts computed plainly. */
#pragma once
#include <fcntl.h>
#include <unistd.h>

#include "gpu-worker/run_cuda.h"
#include "tests/cuda.h"
extern "C" {
#include "coordinator/model/model.h"
#include "coordinator/model/ngram.h"
#include "coordinator/trunk/arch/arch.h"
#include "coordinator/trunk/exec/exec.h"
#include "kernels/cpu.h"
#include "kernels/expert/expert.h"
#include "kernels/func/nasty.h"
#include "kernels/matmul/matmul.h"
#include "kernels/moe/moe.h"
#include "kernels/quantise/quantise.h"
#include "kernels/topk/topk.h"
}
#include "kernels/topk/topk_cuda.h"

enum { MOST_K = 64, DRAFTS = 4, SAVED = 2 };

/* ---- a model's weights, here and on the card ---- */

struct loaded {
    struct model *m;
    struct program *prog;
    uint8_t **weight;    /* host, by program weight */
    const void **card;   /* the same on the card */
    uint8_t **expert;    /* host, by layer * 3 + matrix: all experts, `bytes` apart */
    void **card_experts; /* by layer * 3 + matrix */
    struct run_cuda_layer *layer;
    const uint32_t *ids; /* of the one text, for its tables' rows; NULL: rows that follow from each token alone */
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

    if (!ml->n_experts)
        return;
    out->shape.limit = ml->limit;
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
    if (model_open(path, 0, &l->m, &e) || arch_program_drafting(l->m, l->m->n_nextn ? DRAFTS : 0, &l->prog, &e))
        stop(&e);
    l->weight = (uint8_t **)calloc(l->prog->n_weights, sizeof *l->weight);
    l->card = (const void **)calloc(l->prog->n_weights, sizeof *l->card);
    for (uint32_t i = 0; i < l->prog->n_weights; i++) {
        const struct model_tensor *t = &l->m->tensor[l->prog->weight[i].tensor];
        l->weight[i] = read_bytes(l->m, t->shard, t->file_offset, t->bytes);
        if (t->n_dims == 1 && t->type != W_F32) { /* as coordinator/trunk/exec/weights.c */
            float *wide = (float *)malloc(l->prog->weight[i].cols * sizeof *wide);
            dequant_row(t->type, l->weight[i], l->prog->weight[i].cols, wide);
            free(l->weight[i]);
            l->weight[i] = (uint8_t *)wide;
            l->card[i] = cuda_copy(wide, l->prog->weight[i].cols * sizeof *wide);
            continue;
        }
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

/* Rows of a step's tokens, exec_config's and run_cuda_config's; arg: the struct loaded. */
static void look_up(void *arg, const struct step *s, struct step_rows *out)
{
    const struct loaded *l = (const struct loaded *)arg;
    const struct program *p = l->prog;
    static uint8_t *bytes;

    bytes = (uint8_t *)realloc(bytes, (size_t)s->n_tokens * p->token_bytes + 1);
    for (uint32_t t = 0; t < s->n_tokens; t++)
        for (uint32_t i = 0; i < p->n_tables; i++) {
            const struct prog_table *of = &p->table[i];
            const struct model_tensor *x = &l->m->tensor[of->tensor];
            uint32_t row[MODEL_NGRAM_HEADS], n = (uint32_t)(x->bytes / of->row_bytes);

            for (uint32_t k = 0; k < of->rows; k++)
                row[k] = (s->token[t].id * 2654435761u + s->token[t].pos * 40503u + k * 97u) % n;
            if (l->ids)
                ngram_rows(&l->m->ngram, l->ids, s->token[t].pos, row);
            for (uint32_t k = 0; k < of->rows; k++)
                if (pread(gguf_shard_fd(l->m->g, x->shard), bytes + (size_t)t * p->token_bytes + of->first + k * of->row_bytes,
                          of->row_bytes, (off_t)(x->file_offset + (uint64_t)row[k] * of->row_bytes)) != of->row_bytes) {
                    printf("%s: cannot read\n", l->m->path);
                    exit(1);
                }
        }
    *out = (struct step_rows){bytes, NULL};
}

/* ---- the walk ---- */

struct walk {
    const struct loaded *l;
    struct exec *x;
    float *rows; /* of the call: (tokens, places, n_embd) */
    uint32_t used;
    const struct step *s;
};

static void walk_open(struct walk *w, const struct loaded *l, uint32_t max_tokens, uint32_t n_ctx,
                      uint32_t n_seqs, enum kv_type kv)
{
    struct exec_config c = {};
    struct err e = {};

    memset(w, 0, sizeof *w);
    w->l = l;
    c.prog = l->prog;
    c.weight = l->weight;
    c.max_tokens = c.max_out = max_tokens;
    c.n_ctx = n_ctx;
    c.n_seqs = n_seqs;
    c.n_saved = SAVED;
    c.kv = kv;
    c.rows = look_up;
    c.rows_arg = (void *)l;
    if (exec_open(&c, &w->x, &e))
        stop(&e);
    w->rows = (float *)calloc((size_t)max_tokens * l->prog->top_k * l->prog->n_embd, 4);
}

static void walk_close(struct walk *w)
{
    exec_close(w->x);
    free(w->rows);
}

static float *row(const struct walk *w, uint32_t buf, uint32_t t)
{
    return (float *)exec_row(w->x, buf, t);
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
        expert_gate_up(&gate, &up, n, 0, n_ff, act[0], 64, act[1], 64, NULL, 1, w->l->layer[layer].shape.limit, tmp, h,
                       n_ff);
        act_prepare(type_info(x[2].type)->act, h, n_ff, act[2]);
        expert_down(&down, n_ff, 0, n, act[2], 64, 1, w->rows + ((size_t)t * w->used + p) * n, n);
    }
    for (int k = 0; k < EXPERT_MATS; k++)
        free(act[k]);
    free(h);
    free(tmp);
}

static void walk_sum(struct walk *w, const struct op *op, uint32_t t)
{
    uint32_t n = w->l->prog->n_embd;
    const float *of[MOST_K];

    for (uint32_t k = 0; k < w->used; k++)
        of[k] = w->rows + ((size_t)t * w->used + k) * n;
    moe_sum(row(w, op->in[1], t), of, w->used, row(w, op->out, t), n);
}

static void walk_op(struct walk *w, const struct op *op)
{
    if (op->kind != OP_MOE_CALL && op->kind != OP_MOE_SUM) {
        exec_op(w->x, op);
        return;
    }
    for (uint32_t t = 0; t < w->s->n_tokens; t++)
        (op->kind == OP_MOE_CALL ? walk_experts : walk_sum)(w, op, t);
}

static void walk_begin(struct walk *w, const struct step *s)
{
    w->s = s;
    exec_begin(w->x, s);
}

static const float *walk_logits(const struct walk *w)
{
    const struct program *p = w->l->prog;

    return row(w, w->s->pass == STEP_TRUNK ? p->logits : p->draft_logits, 0);
}

static const float *walk_step(struct walk *w, const struct step *s)
{
    const struct program *p = w->l->prog;
    int draft = s->pass != STEP_TRUNK;

    walk_begin(w, s);
    for (uint32_t i = draft ? p->draft_at : 0; i < (draft ? p->n_ops : p->draft_at); i++)
        walk_op(w, &p->op[i]);
    return walk_logits(w);
}
