/* The trunk's program on a real card, as the host's thread uses it (gpu-worker/host.c): weights go up from the
 * trunk's segment, the lists are recorded, and each step is one launch. A build without CUDA has none
 * (trunk_none.c). One thread. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "kernels/stream.h"

CUDA_BEGIN
#include "coordinator/trunk/exec/program.h"
#include "coordinator/trunk/exec/step.h"
#include "gpu-worker/card.h"
#include "kernels/attention/attention.h"
#include "shm/layout.h"

struct trunk_card_config {
    struct card *card; /* a real one, in use by this thread; borrowed */
    const struct geometry *geo;
    const struct program *prog;        /* borrowed */
    const uint8_t *const *weight;      /* by weight, as the CPU's executor has them; not needed after open */
    const uint8_t *vector;             /* by weight: 1, cols f32 values, whatever the program's type says */
    enum kv_type kv;
    /* payloads of segments; the card is made to reach those that it does not yet */
    struct calls *calls;
    void *acts;
    const struct amends *amends;
    struct tables *tables;
    uint64_t tables_bytes;
    struct answers *answers;
    struct outbox *const *outbox;      /* by number, NULL: none */
    uint32_t owner[MAX_NODES];
    uint32_t n_cards, card_slot0[MAX_CARDS];
    const void *pool;                  /* own slots, the card's address */
    uint32_t slot0, n_slots;
    uint64_t first;                    /* number of the first call */
    uint64_t limit_ms;                 /* for one call */
    void (*rows)(void *arg, const struct step *s, struct step_rows *out); /* as exec_config's */
    void *rows_arg;
};

struct trunk_card;
int trunk_card_open(const struct trunk_card_config *c, struct trunk_card **out, struct err *e);
void trunk_card_close(struct trunk_card *t); /* NULL is allowed; not after an error of the card */
/* Starts a step. changed: n entries of the card's own table, as calls_cuda_changes wants them. */
int trunk_card_begin(struct trunk_card *t, const struct step *s, const uint32_t *changed, size_t n,
                     const uint64_t *entry, struct err *e);
/* 1: over, the logits of the wanted rows lie in the answers' segment; 0: not yet; negative: *e, and the
 * process is to be given up. Looks at a word of memory, now and then at the card. */
int trunk_card_poll(struct trunk_card *t, struct err *e);
/* After it: the arg-max of each wanted row, TOKEN_NONE: it has none. A step with best_only leaves no logits. */
const uint32_t *trunk_card_best(const struct trunk_card *t);
/* From any thread: a step that waits for others gives up. */
void trunk_card_stop(struct trunk_card *t);
/* Tests: a kernel that faults is launched; all that comes after it fails. */
void trunk_card_break(void);
/* What a layer chose in the last step: ids (tokens, used), and how many each. NULL: it has no experts, or is
 * not one of that pass (draft: the NextN block's). */
const uint32_t *trunk_card_choice(const struct trunk_card *t, uint32_t layer, int draft, uint32_t *used);
/* Between steps, waited for: exec.h's save and restore. */
int trunk_card_save(struct trunk_card *t, uint32_t seq, uint32_t pos, uint32_t slot, struct err *e);
int trunk_card_restore(struct trunk_card *t, uint32_t slot, struct err *e);

struct trunk_card_counters {
    uint64_t calls, items, disk_items, card_items, own_items, wait_ns;
    uint64_t launch_ns; /* the host's time in trunk_card_begin */
};
void trunk_card_counters(const struct trunk_card *t, struct trunk_card_counters *c);
CUDA_END
