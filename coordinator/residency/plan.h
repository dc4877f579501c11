/* What goes where, decided before anything is made: the sizes of a run from what the file needs, what
 * was asked and what memory there is. A function from plain values to plain values: the engine makes
 * what the plan says, `conclave plan` prints it.
 *
 * Everything that the processes will ever take is counted here: what is left over stays free for the
 * text of the programs and the pages of files that pass by. So the kernel never has to take a page
 * from us, which would come back as a page fault in the middle of a token. */
#pragma once
#include <stdint.h>

#include "coordinator/residency/slabs.h"
#include "shm/err.h"
#include "shm/layout.h"

#define PLAN_BATCH 512u                 /* tokens of a trunk pass, where memory allows */
#define PLAN_BATCH_LEAST 32u            /* fewer are not chosen by memory, only asked for */
#define PLAN_ARENA_BYTES (64ull << 20)  /* most for activations, intermediates, rows: two halves each */
#define PLAN_LOGIT_BYTES (256ull << 20) /* most for the logits of one pass */
#define PLAN_ORDER_SLOTS 256u
#define PLAN_CONTEXT 4096u /* positions left room for when experts take what there is */
enum { PLAN_NOTES = 7, PLAN_NOTE_ROOM = 240 };

struct plan_file { /* what the model needs; borrowed */
    const char *path;                 /* for messages */
    const struct expert_layer *layer; /* n_layers */
    uint32_t n_layers, n_experts, top_k, n_embd, n_ff, n_vocab, n_ctx_train;
    uint64_t trunk_bytes;    /* of its segment */
    uint64_t token_bytes;    /* of the trunk's buffers, for each token of a pass */
    uint64_t row_bytes;      /* ... for each row of logits */
    uint64_t position_bytes; /* of one position of the context, whoever uses it: rotations */
    uint64_t kept_bytes;     /* keys and values of one position of a sequence */
    uint64_t sequence_bytes; /* of a sequence whatever its length: recurrent states */
    uint64_t saved_bytes;    /* of saved ones, all of them */
    struct plan_tables {     /* look-up tables that may stay in the file (supervise/lookup.h); whole 0: none */
        uint64_t whole, stage, row;
        uint64_t token;      /* bytes of the smallest cache of rows, for each token of a pass */
    } tables;
};
struct plan_ask { /* the flags; 0: not given */
    uint64_t ram; /* bytes of slabs for experts, all nodes together */
    uint32_t n_ctx, batch;
    uint32_t n_seqs; /* sequences, each with a context of its own; 0: one */
    uint32_t n_nodes; /* 1 to MAX_NODES */
    uint32_t threads; /* of the trunk, and as many of all nodes together */
    int every_row;    /* logits of every token may be wanted */
    uint32_t rows;    /* else of so many at most; 0: of one */
    uint32_t call_tokens; /* most of a call, where more would fit (tests); 0: what fits */
    uint64_t tables;  /* bytes for look-up tables: a cache of rows where they take more */
    struct plan_cards {
        uint32_t n;       /* cards, each with a worker; 0: none */
        int emulated;     /* 1: they compute with our processors, from pools in our memory */
        int trunk;        /* 1: a worker of theirs executes the trunk */
        uint32_t n_slots; /* of all */
        uint64_t pools;   /* bytes of emulated cards' pools, all of them */
    } cards;
};
struct plan_budget { /* what the machine gives */
    uint64_t left;   /* bytes that may still be taken by all processes together */
    int own;         /* 1: a limit of ours alone (a cgroup's); 0: others take from it too */
    uint64_t node_left[MAX_NODES]; /* on each node; UINT64_MAX: nodes are simulated or not known */
};
struct plan_bytes { /* adds up to plan_budget.left or less */
    uint64_t trunk;   /* weights */
    uint64_t tables;  /* look-up tables: whole, or a cache of rows and what they are read into */
    uint64_t calls;   /* rings, arenas, outboxes, tables */
    uint64_t work;    /* buffers of a pass, the trunk's and the workers' */
    uint64_t context; /* keys and values, rotations */
    uint64_t experts; /* slabs */
    uint64_t cards;   /* emulated cards' pools */
    uint64_t kernel;  /* page tables and the like of the segments, in every process */
    uint64_t process; /* stacks, libraries' data */
    uint64_t reserve; /* left alone */
};
struct plan {
    struct geometry geo;
    struct slab_plan slabs; /* how the bytes for experts are cut */
    uint32_t n_ctx, max_tokens, max_out;
    uint64_t ram;          /* bytes for experts, all nodes together: what slabs were cut from */
    uint64_t need_experts; /* of all experts */
    int tables_whole;      /* look-up tables lie in memory */
    uint64_t table_cache;  /* else bytes of rows that are kept */
    struct plan_bytes bytes;
    uint32_t n_notes;
    struct plan_note {
        int always; /* 1: the user must know; 0: with -v */
        char text[PLAN_NOTE_ROOM];
    } note[PLAN_NOTES];
};
/* -ENOMEM, -ENOSPC: one line with what it takes, what is left and what to do. */
int plan_make(const struct plan_file *f, const struct plan_ask *a, const struct plan_budget *b,
              struct plan *p, struct err *e);
/* Bytes that the plan takes in all, the reserve not counted. */
uint64_t plan_taken(const struct plan *p);
