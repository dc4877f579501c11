/* What sequences keep from step to step, and where it lies. Rows by position (STATE_KV, STATE_POOLS) are written
 * where they belong; a tail and a matrix have two versions, and versions.h says which one a step reads. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "coordinator/trunk/exec/program.h"
#include "coordinator/trunk/exec/step.h"
#include "coordinator/trunk/exec/versions.h"
#include "kernels/attention/attention.h"

/* Bytes of one sequence's state: fixed, and for n_ctx positions more. */
uint64_t states_fixed_bytes(const struct program *p);
uint64_t states_bytes(const struct program *p, enum kv_type kv, uint64_t n_ctx);
/* Of a saved one: what is fixed of the trunk's, once. 0: nothing has to be saved. */
uint64_t states_saved_bytes(const struct program *p);

struct states;
/* NULL: no memory */
struct states *states_open(const struct program *p, enum kv_type kv, uint32_t n_ctx, uint32_t n_seqs, uint32_t n_saved);
void states_close(struct states *s);

/* Before a step: what is read and written; its runs (versions.h). */
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

/* Between steps: copies what is fixed of a sequence's state before position pos (versions.h) to a slot; and back,
 * which needs its rows of all earlier positions as they were then. The NextN block's is not saved: it begins
 * anew. Returns the position. */
void states_save(struct states *s, uint32_t seq, uint32_t pos, uint32_t slot);
uint32_t states_restore(struct states *s, uint32_t slot);
