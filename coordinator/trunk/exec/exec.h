/* Executes a program on this process's team of threads. Owns buffers, keys and values, and the table
 * of rotations; borrows the weights (the trunk segment), the team and the experts' side (moe.h).
 * Results depend on the program, the weights and the tokens alone: batch, threads and the order of
 * work change no bit (ARITHMETIC.md rule 16). */
#pragma once
#include <stddef.h>

#include "coordinator/trunk/exec/program.h"
#include "coordinator/trunk/exec/step.h"
#include "kernels/attention/attention.h"
#include "shm/err.h"
#include "shm/team.h"

struct moe;
struct exec;

struct exec_config {
    const struct program *prog; /* borrowed */
    const uint8_t *const *weight; /* by weight: its first byte; borrowed */
    struct moe *moe;            /* borrowed */
    uint32_t max_tokens, max_out; /* of a step */
    uint32_t n_ctx, n_seqs;
    uint32_t n_saved;           /* slots for saved states */
    enum kv_type kv;
    /* Rows of the step's tokens, valid until the next step, and may wait for them. Leader of the team only; NULL: the
     * program has no tables. */
    void (*rows)(void *arg, const struct step *s, struct step_rows *out);
    void *rows_arg;
};
int exec_open(const struct exec_config *c, struct exec **out, struct err *e);
void exec_close(struct exec *x);
/* Bytes of what one sequence keeps with a context of n_ctx positions (states.h). */
uint64_t exec_kv_bytes(const struct program *p, enum kv_type kv, uint64_t n_ctx);
/* Of that: whatever its length; for each position (a pool's row is shared by its positions). */
uint64_t exec_sequence_bytes(const struct program *p);
uint64_t exec_position_bytes(const struct program *p, enum kv_type kv);
/* Bytes that exec_open takes: for each token of a step, each output row, each position (kept: of each sequence),
 * each sequence, each saved state. */
struct exec_needs {
    uint64_t token, row, position, kept, sequence, saved;
};
struct exec_needs exec_needs(const struct program *p, enum kv_type kv);

/* Leader of the team only. The logits, (n_out, n_vocab) f32, valid until the next step of the same part
 * of the program. Where the step begins says what is kept of the one before: versions.h. */
const float *exec_step(struct exec *x, struct team *team, const struct step *s);

/* Between steps: a sequence's fixed state before position pos to a slot, and back (states.h). */
void exec_save(struct exec *x, uint32_t seq, uint32_t pos, uint32_t slot);
uint32_t exec_restore(struct exec *x, uint32_t slot);

/* For tests that walk a program beside another executor: a step's beginning, then its operations one by one in
 * their order, on this thread. The experts' calls are the caller's. A row of a buffer as it is now. */
void exec_begin(struct exec *x, const struct step *s);
void exec_op(struct exec *x, const struct op *op);
void *exec_row(const struct exec *x, uint32_t buffer, uint32_t row);

/* Every named result of the following steps is told: an array of n[0] rows, n[1] values each, or (n[1], n[2])
 * or (n[1], n[2], n[3]) where these are not 0; f32 or, if integer, i32. whole: it is what is left at the end
 * of the step, in place of what was told of it before; else rows that follow those before. What has a value for each position has `positions` of them. NULL:
 * none. */
typedef void exec_dump_fn(void *arg, const char *name, int integer, int whole, const void *rows, const size_t n[4]);
void exec_dump(struct exec *x, exec_dump_fn *fn, void *arg, uint32_t positions);
uint64_t exec_steps(const struct exec *x);
