/* The card's executor's inside, shared by the files that launch operations (run_dense_cuda.cu,
 * run_state_cuda.cu). */
#pragma once
#include <cuda_runtime.h>

#include "gpu-worker/calls_cuda.h"
#include "gpu-worker/run_cuda.h"
#include "kernels/attention/attention_cuda.h"
extern "C" {
#include "coordinator/trunk/exec/versions.h"
#include "kernels/quantise/quantise.h"
}

enum { N_FORMS = 3 };

struct buffer {
    float *data;
    uint8_t *form[N_FORMS]; /* of each row, its parts one after the other */
    size_t form_stride[N_FORMS], part_stride[N_FORMS];
};

/* One of the program's states, all sequences'. */
struct state_place {
    struct attention_kv kv; /* STATE_KV */
    float *base;            /* the others: sequence s at s * seq_floats */
    size_t seq_floats;
    size_t version_floats, kept_floats; /* tails, matrices: twice each (kernels/delta/delta_cuda.h) */
};

/* Products of vectors beside each other in a row, each with its own rows: experts' items that never change. */
struct parts_place {
    uint32_t n;                 /* parts; 0: no such product in the program */
    struct expert_item *items;  /* for 1 .. EXPERT_TOKENS rows, n each */
    uint32_t *n_items;
    struct expert_slot **slots; /* by operation, on the card; NULL: another kind */
};

struct run_cuda {
    struct run_cuda_config c;
    struct run_cuda_counters count;
    cudaStream_t stream;
    cudaGraphExec_t graph[2][RUN_CUDA_RECORDED + 1]; /* the trunk's, the NextN block's; by tokens */
    uint8_t *arena;                                  /* everything on the card */
    uint64_t arena_bytes, arena_used;
    struct buffer *buf;
    struct state_place *state;
    struct versions *versions;
    float *saved; /* slots of saved_floats */
    size_t saved_floats;
    float *cos, *sin, *rope_host; /* (n_ctx + 1, n_rot / 2) on the card; a block of both, pinned */
    uint32_t rope_ready;
    void *attention_scratch;
    float *scores; /* (INDEX_LIST_TOKENS, n_pools) */
    uint32_t n_pools;
    struct parts_place parts;
    /* the step on the card */
    uint64_t *number;
    uint32_t *n_out, *id, *pos, *seq, *out, *n_runs, *carry;
    struct run *run;
    uint8_t *table;      /* looked-up rows of its tokens */
    uint8_t *table_host; /* the same in mapped host memory; NULL: the program has no tables */
    /* experts */
    struct expert_item *items;
    uint32_t *n_items;
    struct expert_slot *slots;    /* of own items, with calls */
    struct calls_cuda_layer open; /* the layer whose rows are to be summed */
    uint8_t *act[N_FORMS];        /* a layer's vectors as gate and up want them */
    float *hidden, *tmp, *rows;
    void *many; /* expert_many_cuda's tmp */
    uint32_t used; /* places of the last call */
    int recording; /* what is launched becomes part of a graph */
    /* the answer */
    uint32_t *best;
    void *best_scratch;
    unsigned *arrived;
    struct record *record;
    struct answer *answer;
    uint64_t steps;
    uint32_t last_out, polls;
    uint32_t last_logits; /* the buffer of them */
    uint32_t last_draft;  /* output row of the draft step before */
};

/* What is launched: T tokens, O output rows, of the trunk or of the NextN block. */
struct pass {
    uint32_t T, O;
    int draft;
};
static inline uint32_t live(const struct run_cuda *x, struct pass p, uint32_t buf)
{
    return x->c.prog->buffer[buf].rows ? p.O : p.T;
}
static inline uint32_t width_of(const struct run_cuda *x, uint32_t buf)
{
    return x->c.prog->buffer[buf].width;
}
static inline uint32_t parts_of(const struct prog_buffer *b)
{
    return b->parts ? b->parts : 1;
}
static inline const float *vector_of(const struct run_cuda *x, uint32_t weight)
{
    return weight == PROG_NONE ? NULL : (const float *)x->c.weight[weight];
}
/* Sequences of a pass, at most. */
static inline uint32_t most_runs(const struct run_cuda *x, struct pass p)
{
    return p.T < x->c.n_seqs ? p.T : x->c.n_seqs;
}
/* Bytes of the arena. */
void *run_cuda_take(struct run_cuda *x, uint64_t bytes);

/* Launch one operation; 0 or a cudaError_t. NOT_MINE: another file's. */
enum { NOT_MINE = -1 };
int run_dense(struct run_cuda *x, const struct op *op, struct pass p);
int run_state(struct run_cuda *x, const struct op *op, struct pass p);

/* run_dense_cuda.cu: items and slots of products by parts: places, then contents, once. */
void parts_lay_out(struct run_cuda *x);
cudaError_t parts_fill(struct run_cuda *x);

/* run_state_cuda.cu */
void states_lay_out(struct run_cuda *x);
/* A sequence's fixed state to a slot, or back, in the stream. */
cudaError_t states_copy(struct run_cuda *x, const struct version_copy *c, uint32_t slot, int back);
