/* What goes where, decided before anything is made: the sizes of a run from what the file needs, what
 * was asked and what memory there is. A function from plain values to plain values: the engine makes
 * what the plan says, `conclave plan` prints it. */
#pragma once
#include <stdint.h>

#include "coordinator/residency/slabs.h"
#include "shm/err.h"
#include "shm/layout.h"

#define PLAN_BATCH 512u                     /* tokens of a trunk pass unless asked otherwise */
#define PLAN_ARENA_BYTES (64ull << 20)      /* of activations, intermediates, rows: two halves each */
#define PLAN_LOGIT_BYTES (256ull << 20)     /* most for the logits of one pass */
#define PLAN_ORDER_SLOTS 256u
#define PLAN_CONTEXT 4096u                  /* tokens left room for when experts take what there is */
enum { PLAN_NOTES = 4, PLAN_NOTE_ROOM = 200 };

struct plan_file { /* what the model needs; borrowed */
    const char *path;  /* for messages */
    const struct expert_layer *layer; /* n_layers */
    uint32_t n_layers, n_experts, top_k, n_embd, n_ff, n_vocab, n_ctx_train;
    uint64_t trunk_bytes; /* of its segment */
    uint64_t kv_bytes;    /* keys and values of one token */
};
struct plan_ask { /* the flags; 0: not given */
    uint64_t ram;     /* bytes of slabs for experts, all nodes together */
    uint32_t n_ctx, batch;
    uint32_t n_nodes; /* 1 to MAX_NODES */
    int every_row;    /* logits of every token may be wanted */
};
struct plan_budget { /* what the machine gives */
    uint64_t left; /* bytes that may still be allocated by all processes together */
};
struct plan {
    struct geometry geo;
    struct slab_plan slabs; /* how the bytes for experts are cut */
    uint32_t n_ctx, max_tokens, max_out;
    uint64_t ram;   /* bytes for experts, all nodes together: what slabs were cut from */
    uint32_t n_notes;
    struct plan_note {
        int always; /* 1: the user must know; 0: with -v */
        char text[PLAN_NOTE_ROOM];
    } note[PLAN_NOTES];
};
/* -ENOMEM, -ENOSPC: one line with what it takes, what is left and what to do. */
int plan_make(const struct plan_file *f, const struct plan_ask *a, const struct plan_budget *b,
              struct plan *p, struct err *e);
