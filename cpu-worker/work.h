/* A pass of the team over shares of one call: gate and up rows, the intermediate as an operand,
 * down rows (ARITHMETIC.md rule 27). The rows of all shares are laid end to end and cut evenly over
 * the threads (shm/runs.h), so one pass costs the same few meetings whatever it holds. Which thread makes a row,
 * and with which others, changes no bit (rule 16).
 *
 * Reads slabs, activations and outboxes; writes the own outbox's arenas; no stamps, no decisions.
 */
#pragma once
#include "cpu-worker/job.h"
#include "shm/runs.h"
#include "shm/team.h"

#define N_FORMS 3     /* enum act_form */
#define FEW_TOKENS 4u /* below: the leader prepares the activations, no meeting */
#define FEW_PAIRS 8u  /* up to so many an item: each thread prepares what it needs itself */
#define SOLO_COST                                                                                  \
    (32u << 10) /* up to 16 KB of weights for one token: the leader alone, handing                 \
                 * out costs more */
#define CHUNK_FLOATS (32u << 10) /* results of one kernel call: 128 KB, half of a small L2 cache   \
                                  */

struct scratch {  /* one thread's */
    float *tmp;   /* 2 chunks */
    float *out;   /* a chunk */
    float *row;   /* n_ff */
    uint8_t *mid; /* FEW_PAIRS prepared vectors */
    const struct job *mid_of; /* whose; NULL: nobody's of this pass */
};

struct work {
    const struct maps *m;
    int n_threads;
    struct scratch *scratch;
    size_t chunk;                                  /* floats */
    size_t x_stride[N_FORMS], mid_stride[N_FORMS]; /* largest of any layer; 0: form not used */
    uint8_t *x[CALLS_IN_FLIGHT][N_FORMS];          /* prepared activations of a call */
    uint64_t x_call[CALLS_IN_FLIGHT];              /* whose; 0: nobody's */
    uint8_t *mid;                                  /* prepared intermediates of all jobs */
    struct jobs jobs;
    struct runs runs[N_STAGES];
    /* the pass in progress */
    struct team *team;
    const struct pass *pass;
    const struct layer *layer;
    int split_x, split_mid;
};

/* Allocates for n_threads. Free with work_drop, also after an error. */
int work_init(struct work *w, const struct maps *m, int n_threads, struct err *e);
void work_drop(struct work *w);
/* Every thread touches its own arrays. Once, before the first pass. */
void work_warm(struct work *w, struct team *t);
/* Rows (or, for stage one alone, the intermediate) of all shares of the pass are in memory on
 * return. */
void work_pass(struct work *w, struct team *t, const struct pass *p);
