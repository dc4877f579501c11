/* The trunk's program on a card: coordinator/trunk/exec/program.h's list, recorded once for each batch
 * of 1 to RUN_CUDA_RECORDED tokens as a CUDA graph (the NextN block's part as another) and replayed a step; larger passes (prompts) are
 * launched. The bytes are those of the CPU executor (coordinator/trunk/exec/run_cpu.c).
 *
 * Plain values in, launches out: it knows no process and no file. Owns buffers, keys and values,
 * and the table of rotations on the card, and the step record and the answer in mapped host memory.
 * Borrows the weights, which lie on the card already. Order: open; then step, wait and logits in
 * turn; close. One thread at a time. Nothing is allocated after open, and every kernel is loaded by
 * then. */
#pragma once
#include <stdint.h>

#include "kernels/stream.h"

CUDA_BEGIN
#include "coordinator/trunk/exec/program.h"
#include "coordinator/trunk/exec/step.h"
#include "kernels/attention/attention.h"
#include "kernels/expert/expert_cuda.h"
#include "shm/err.h"

enum { RUN_CUDA_RECORDED = 8 };

struct calls_cuda;

/* The routed experts of one layer. */
struct run_cuda_layer {
    struct expert_shape shape;
    const struct expert_slot *slot; /* without calls: device memory, expert e is slot[e] */
};

struct run_cuda_config {
    int device;
    const struct program *prog; /* borrowed */
    const void *const *weight;  /* by weight: its first byte on the card; 16-byte aligned, readable
                                   to the end of the sixteen bytes in which it ends */
    const struct run_cuda_layer *layer; /* by layer: what OP_MOE_CALL names; borrowed */
    struct calls_cuda *calls; /* who makes which expert is found there; borrowed. NULL: all of them lie here */
    float *logits;            /* mapped host memory, (max_out, n_vocab), as the card sees it: where a step leaves
                                 its logits too. NULL: they stay on the card */
    uint32_t call_tokens;     /* calls: most tokens of one; a larger pass goes out in equal parts */
    uint32_t n_experts;
    uint32_t max_tokens, max_out; /* of a step */
    uint32_t n_ctx, n_seqs;
    uint32_t n_saved; /* slots for saved states */
    enum kv_type kv;
    /* as exec_config's */
    void (*rows)(void *arg, const struct step *s, struct step_rows *out);
    void *rows_arg;
};

struct run_cuda;
int run_cuda_open(const struct run_cuda_config *c, struct run_cuda **out, struct err *e);
void run_cuda_close(struct run_cuda *x); /* NULL is allowed */
/* Bytes of the card's memory that open takes, roughly to a part in a hundred. */
uint64_t run_cuda_bytes(const struct run_cuda_config *c);

/* Starts a step; the former one has been waited for. Ids, positions and rows are in range
 * (asserted). A pass that is launched waits here for the calls of its layers, or calls_cuda_stop. */
int run_cuda_step(struct run_cuda *x, const struct step *s, struct err *e);
/* Is the step's stamp there? 1; 0: not yet, looks at one word and now and then at the card; negative: as
 * run_cuda_wait. */
int run_cuda_poll(struct run_cuda *x, struct err *e);
/* After that: the arg-max of each wanted row, as run_cuda_wait's *best. */
const uint32_t *run_cuda_best(const struct run_cuda *x);
/* Waits for the step's stamp, by looking at mapped memory. *best: n_out token ids, the arg-max of
 * each wanted row (ARGMAX_NONE: it has none), valid until the next step. Late by more than
 * limit_ms, or an error of the card: a line, and the card is to be given up. */
int run_cuda_wait(struct run_cuda *x, uint32_t limit_ms, const uint32_t **best, struct err *e);
/* Copies the step's logits, (n_out, n_vocab) f32. After run_cuda_wait. */
int run_cuda_logits(struct run_cuda *x, float *to, struct err *e);

/* Between steps: exec.h's save and restore; the copies are on the card. */
int run_cuda_save(struct run_cuda *x, uint32_t seq, uint32_t pos, uint32_t slot, struct err *e);
int run_cuda_restore(struct run_cuda *x, uint32_t slot, struct err *e);

/* For tests: a step operation by operation, each waited for; seen() after each, with the first byte
 * of its result on the card. */
typedef void run_cuda_seen(void *arg, const struct op *op, const void *result, uint32_t rows,
                           uint32_t width);
int run_cuda_slowly(struct run_cuda *x, const struct step *s, run_cuda_seen *seen, void *arg,
                    struct err *e);
/* For tests: the card's address of row 0 of a buffer, (rows, width). */
const void *run_cuda_buffer(const struct run_cuda *x, uint32_t buffer);

struct run_cuda_counters {
    uint64_t steps, replayed; /* of these: by a recorded graph */
    uint64_t launch_ns;       /* host time from a step's begin to the end of its last launch; larger passes wait for
                               * calls in it */
};
const struct run_cuda_counters *run_cuda_counters(const struct run_cuda *x);
CUDA_END
