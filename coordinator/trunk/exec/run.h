/* The executor's inside, shared by the files that execute operations (run_*.c). */
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/trunk/exec/ahead.h"
#include "coordinator/trunk/exec/exec.h"
#include "coordinator/trunk/exec/moe.h"
#include "coordinator/trunk/exec/states.h"
#include "kernels/quantise/quantise.h"

#define N_FORMS 3
#define SELECT_TOKENS 8 /* whose scores are there at once */

struct buffer {
    void *data; /* (rows, width) */
    uint8_t *form[N_FORMS]; /* of each row, its parts one after the other */
    size_t form_stride[N_FORMS], part_stride[N_FORMS];
};

/* Zeroed, in every form that it is prepared in. 0; -1: no memory, and what there is must be closed. */
int buffer_open(const struct prog_buffer *b, uint32_t rows, struct buffer *out);
void buffer_close(struct buffer *b);

struct exec {
    struct exec_config c;
    struct buffer *buf;
    struct states *states;
    float *cos, *sin; /* (n_ctx + 1, n_rot / 2), valid below rope_ready */
    uint32_t rope_ready;
    uint8_t *scratch; /* per thread */
    size_t scratch_bytes;
    int n_scratch;
    float *scores; /* (SELECT_TOKENS, pools of the context): of the group of tokens in work */
    size_t n_pools;
    struct ahead_guess *guess;
    /* the step */
    const struct step *s;
    struct step_rows rows; /* asked for by the first operation that reads them; NULL: not yet */
    struct team *team;
    uint64_t n_steps;
    uint32_t begin, end; /* of its operations */
    uint32_t last_draft; /* output row of the last draft step; carry: of the one before this step */
    uint32_t carry;
    uint8_t *plan; /* by op: bit 0 the team works on it, bit 1 meet before it */
    struct plan_of { /* what it was made for: the trunk's part, the NextN block's */
        uint32_t tokens, out, keys;
    } planned[2];
    uint32_t plan_keys;
    exec_dump_fn *dump;
    void *dump_arg;
    uint32_t dump_positions;
    float *keep; /* rows of the layer in work, for dumps */
    float *dump_scores; /* (max_tokens, n_pools) */
    int32_t *dump_chosen;
};

/* A thread's part of an operation. */
struct part {
    uint32_t thread, n;
    int team; /* all threads are here */
};
/* [a, b) of n things, cut at multiples of step */
static inline void cut(uint32_t n, struct part p, uint32_t step, uint32_t *a, uint32_t *b)
{
    *a = (uint32_t)((uint64_t)n * p.thread / p.n) / step * step;
    *b = p.thread + 1 == p.n ? n : (uint32_t)((uint64_t)n * (p.thread + 1) / p.n) / step * step;
}

static inline float *row_f32(const struct exec *x, uint32_t buf, uint32_t row)
{
    return (float *)x->buf[buf].data + (size_t)row * x->c.prog->buffer[buf].width;
}
static inline uint32_t width_of(const struct exec *x, uint32_t buf)
{
    return x->c.prog->buffer[buf].width;
}
static inline uint32_t live_rows(const struct exec *x, uint32_t buf)
{
    return x->c.prog->buffer[buf].rows ? x->s->n_out : x->s->n_tokens;
}
static inline const float *vector_of(const struct exec *x, uint32_t weight)
{
    return weight == PROG_NONE ? NULL : (const float *)x->c.weight[weight];
}
/* Looked-up rows of the step's tokens. The leader's: waits until they are there. */
static inline const struct step_rows *exec_rows(struct exec *x)
{
    if (!x->rows.bytes)
        x->c.rows(x->c.rows_arg, x->s, &x->rows);
    return &x->rows;
}
static inline uint8_t *scratch_of(const struct exec *x, struct part p)
{
    return x->scratch + p.thread * x->scratch_bytes;
}

/* run_dense.c: products, norms, functions, rows */
void run_embed(struct exec *x, const struct op *op, struct part p);
void run_rows(struct exec *x, const struct op *op, struct part p);
void run_prepare(struct exec *x, const struct op *op, struct part p);
void run_matmul(struct exec *x, const struct op *op, struct part p);
void run_matmul_parts(struct exec *x, const struct op *op, struct part p);
void run_rms_norm(struct exec *x, const struct op *op, struct part p);
void run_l2_norm(struct exec *x, const struct op *op, struct part p);
void run_layer_norm(struct exec *x, const struct op *op, struct part p);
void run_gated_norm(struct exec *x, const struct op *op, struct part p);
void run_func(struct exec *x, const struct op *op, struct part p);
void run_scale(struct exec *x, const struct op *op, struct part p);
void run_swiglu(struct exec *x, const struct op *op, struct part p);
void run_rope(struct exec *x, const struct op *op, struct part p);
void run_add(struct exec *x, const struct op *op, struct part p);
void run_router(struct exec *x, const struct op *op, struct part p);
void run_pick(struct exec *x, const struct op *op, struct part p);
void run_repeat(struct exec *x, const struct op *op, struct part p);
void run_slice(struct exec *x, const struct op *op, struct part p);
void run_mul(struct exec *x, const struct op *op, struct part p);
void run_add_times(struct exec *x, const struct op *op, struct part p);
void run_carry(struct exec *x, const struct op *op, struct part p);
/* run_attention.c */
void run_kv_append(struct exec *x, const struct op *op, struct part p);
void run_attention(struct exec *x, const struct op *op, struct part p);
void run_pool(struct exec *x, const struct op *op, struct part p);
void run_select(struct exec *x, const struct op *op, struct part p);
size_t attention_scratch_bytes(const struct program *p);
/* run_delta.c */
void run_conv(struct exec *x, const struct op *op, struct part p);
void run_decay(struct exec *x, const struct op *op, struct part p);
void run_delta(struct exec *x, const struct op *op, struct part p);
size_t delta_scratch_bytes(const struct program *p);
/* run_hyper.c */
void run_hyper_mix(struct exec *x, const struct op *op, struct part p);
void run_hyper_collapse(struct exec *x, const struct op *op, struct part p);
void run_hyper_expand(struct exec *x, const struct op *op, struct part p);
void run_hyper_mean(struct exec *x, const struct op *op, struct part p);
void run_branch_mean(struct exec *x, const struct op *op, struct part p);
void run_branch_gate(struct exec *x, const struct op *op, struct part p);
/* run_dump.c: tells what an operation has made */
void run_dump(struct exec *x, const struct op *op);
