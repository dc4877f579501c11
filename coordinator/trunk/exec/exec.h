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
    enum kv_type kv;
};
int exec_open(const struct exec_config *c, struct exec **out, struct err *e);
void exec_close(struct exec *x);
/* Bytes of keys and values for n_ctx positions of one sequence. */
uint64_t exec_kv_bytes(const struct program *p, enum kv_type kv, uint64_t n_ctx);
/* Bytes that exec_open takes: for each token of a step, each output row, each position. */
struct exec_needs {
    uint64_t token, row, position;
};
struct exec_needs exec_needs(const struct program *p, enum kv_type kv);

/* Leader of the team only. The logits, (n_out, n_vocab) f32, valid until the next step. */
const float *exec_step(struct exec *x, struct team *team, const struct step *s);

/* Every named result of the following steps is told: n_rows rows of (a, b) values (b 0: of a values), f32
 * or, if integer, i32. NULL: none. */
typedef void exec_dump_fn(void *arg, const char *name, int integer, const void *rows, size_t n_rows,
                          uint32_t a, uint32_t b);
void exec_dump(struct exec *x, exec_dump_fn *fn, void *arg);
uint64_t exec_steps(const struct exec *x);
