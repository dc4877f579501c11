/* Which version of tails and matrices each step reads and writes, decided from positions alone; where they
 * lie is the executor's (states.h, gpu-worker/run_cuda.h). Pure: no state is touched here.
 *
 * A step reads version n and writes n + 1, and the next step's first position says what became of it:
 *   where n + 1 ends       it is taken: it is the new n
 *   where n ends           it never was: the step is played again
 *   between the two        some of its tokens were rejected: n + 1 is made again from n with the accepted
 *                          ones, whose keys, values and gates were kept (at most rollback + 1 tokens)
 *   0                      a new sequence: everything is zero
 * The NextN block's rows count for themselves; it has tails alone, which can go back by rollback rows
 * whatever the steps were. Any other position is the caller's error. A program without tails and matrices
 * takes steps as they come. */
#pragma once
#include <stdint.h>

#include "coordinator/trunk/exec/program.h"
#include "coordinator/trunk/exec/step.h"
#include "kernels/run.h"

/* Are the tokens of a run kept? A prompt's are not: they are never rejected. */
static inline int run_keeps(const struct program *p, const struct run *r)
{
    return p->rollback && r->n <= p->rollback + 1;
}

/* Rows of a tail: what a step may look back at, from any token that it may go back to. */
static inline uint32_t state_tail_rows(const struct program *p, const struct prog_state *st)
{
    return st->head_values + p->rollback;
}

struct versions;
/* NULL: no memory. n_saved: slots for saved states. */
struct versions *versions_open(const struct program *p, uint32_t n_seqs, uint32_t n_saved);
void versions_close(struct versions *v); /* NULL is allowed */

/* Before a step: its runs. Asserts that it can follow what was before. */
void versions_begin(struct versions *v, const struct step *step);
/* The runs of the step that began last. */
const struct run *versions_runs(const struct versions *v, uint32_t *n);

/* The trunk's state of a sequence as it is before position pos, to a slot or from it: which versions are copied.
 * pos is where the last step began or ended, or between, if what it kept reaches there. */
struct version_copy {
    uint32_t seq, pos;
    int any;          /* 0: nothing is to be copied: rows by position alone, or the sequence's beginning */
    uint32_t tail;    /* version of tails, and ... */
    uint32_t matrix;  /* ... of matrices */
    int kept;         /* 1: kept tokens too: the matrix is to be made again with some of them */
};
struct version_copy versions_save(struct versions *v, uint32_t seq, uint32_t pos, uint32_t slot);
/* From then on the sequence is before that position; the slot stays as it is. */
struct version_copy versions_restore(struct versions *v, uint32_t slot);
