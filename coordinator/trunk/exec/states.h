/* What sequences keep from step to step, and where each step finds it.
 *
 * Rows by position (STATE_KV, STATE_POOLS) are written where they belong. A tail and a matrix have two
 * versions: a step reads n and writes n + 1, and the next step's first position says what became of it:
 *   where n + 1 ends       it is taken: it is the new n
 *   where n ends           it never was: the step is played again
 *   between the two        some of its tokens were rejected: n + 1 is made again from n with the accepted
 *                          ones, whose keys, values and gates were kept (at most rollback + 1 tokens)
 *   0                      a new sequence: everything is zero
 * The NextN block's rows count for themselves; it has tails alone, which can go back by rollback rows
 * whatever the steps were. Any other position is the caller's error. A program without tails and matrices
 * takes steps as they come. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "coordinator/trunk/exec/program.h"
#include "coordinator/trunk/exec/step.h"
#include "kernels/attention/attention.h"

/* Bytes of one sequence's state: fixed, and for n_ctx positions more. */
uint64_t states_fixed_bytes(const struct program *p);
uint64_t states_bytes(const struct program *p, enum kv_type kv, uint64_t n_ctx);

struct states;
/* NULL: no memory */
struct states *states_open(const struct program *p, enum kv_type kv, uint32_t n_ctx, uint32_t n_seqs);
void states_close(struct states *s);

/* Tokens of one sequence in a step: [first, first + n), from position pos on. */
struct run {
    uint32_t seq, first, n, pos;
    uint32_t redo; /* kept tokens of the step before that a matrix is made again with; 0: none */
    uint32_t from; /* version that is read; the other one is written */
    int zero;      /* it is zero: the sequence begins */
};
/* Before a step: what is read and written. Asserts that it can follow what was before. */
void states_begin(struct states *s, const struct step *step);
/* The runs of the step that began last. */
const struct run *states_runs(const struct states *s, uint32_t *n);

/* Row 0 of a kv head of one sequence, keys or values; the next position's row_bytes on. */
uint8_t *states_keys(const struct states *s, uint32_t state, uint32_t seq, uint32_t head);
uint8_t *states_values(const struct states *s, uint32_t state, uint32_t seq, uint32_t head);
float *states_pools(const struct states *s, uint32_t state, uint32_t seq); /* pool 0's row */

/* Row of position pos in a tail's version that is read; NULL: before the sequence. pos: before r's. */
const float *states_tail_row(const struct states *s, uint32_t state, const struct run *r, int64_t pos);
/* Values [a, b) of the tail that is written: those of the step's token t begin at rows + t * stride, those of
 * earlier positions come from the version that is read. */
void states_tail_write(const struct states *s, uint32_t state, const struct run *r, uint32_t a, uint32_t b,
                       const float *rows, size_t stride);

/* A head's matrix: version 0 or 1. */
float *states_matrix(const struct states *s, uint32_t state, uint32_t seq, uint32_t version, uint32_t head);
/* Kept keys, values, decays (exp of g) and beta of token i of the step before, one head's. */
struct kept {
    float *k, *v, *decay, *beta;
};
struct kept states_kept(const struct states *s, uint32_t state, uint32_t seq, uint32_t i, uint32_t head);
/* Are the tokens of a run kept? A prompt's are not: they are never rejected. */
int states_keeps(const struct states *s, const struct run *r);
