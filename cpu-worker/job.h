/* A pass laid out for a team: one job a share, and how their rows are cut over threads. The rows of
 * all jobs lie end to end; a row costs its bytes once and its multiplications once a pair; every
 * thread gets an even part of the cost (shm/runs.h), in whole units of rows. Decisions only:
 * nothing here reads a weight. */
#pragma once
#include "cpu-worker/share.h"
#include "kernels/expert/expert.h"

#define ROW_UNIT 16u /* rows of a cut: one cache line of results, shared by no two threads */

enum stage { STAGE_ONE, STAGE_TWO, N_STAGES }; /* gate and up; down */
struct job {
    struct expert_part part[N_MATS]; /* .w: the share's first row */
    const struct call_pair *pair;
    const uint32_t *token;     /* of the pairs */
    uint32_t n_pairs, pair0;   /* pair0: pairs of the jobs before */
    uint32_t r0[N_STAGES];     /* the share's first row, of gate and of down */
    uint32_t n_rows[N_STAGES]; /* its rows, in ROW_UNITs: */
    uint32_t units[N_STAGES];
    uint64_t unit_cost[N_STAGES];  /* of one */
    uint64_t before[N_STAGES];     /* of the jobs before */
    const float *inter[MAX_NODES]; /* where the columns of each node's share lie */
};
struct jobs {
    struct job *job; /* max_items * n_nodes */
    uint32_t *token; /* of all pairs of all jobs */
    uint32_t n, n_pairs, most_pairs;
    uint64_t cost[N_STAGES]; /* of all */
};

/* Free with cut_jobs_drop, also after an error. */
int cut_jobs_init(struct jobs *js, const struct geometry *g, struct err *e);
void cut_jobs_drop(struct jobs *js);
void cut_jobs_lay_out(struct jobs *js, const struct maps *m, const struct pass *p);
/* The rows [*r0, *r1) of the job's share in the part [from, to) of the stage's cost. 0: none. Parts that
 * lie end to end have every row once. */
int job_rows(const struct job *j, enum stage stage, uint64_t from, uint64_t to, uint32_t *r0, uint32_t *r1);
