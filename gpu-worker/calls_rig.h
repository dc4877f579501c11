/* For tests of who produces calls on a card: the segments of a run in this process, its nodes' workers, two
 * cards' workers (the CPU's kernels) and a steward as threads, over a model's experts. The first card is the
 * trunk's: what its executor does not find in its own copy is served like another card's. Between steps
 * calls_rig_deal moves experts between card, card, RAM and disk, and plants stale entries and late owners. */
#pragma once
#ifdef __cplusplus
extern "C" {
#endif
#include "shm/err.h"
#include "shm/layout.h"

enum { RIG_CARDS = 2 };
struct calls_rig_layer { /* expert e's matrix m lies at rows[m] + e * bytes[m] */
    uint32_t top_k, type[N_MATS];
    const uint8_t *rows[N_MATS];
    uint64_t bytes[N_MATS];
    const float *scale[N_MATS]; /* by expert; NULL: none in any */
};
struct calls_rig_config {
    uint32_t n_nodes, n_layers, n_experts, n_embd, n_ff;
    uint32_t max_tokens;  /* of a call */
    uint32_t step_tokens; /* of a pass */
    uint32_t n_slots;     /* of each card */
    const struct calls_rig_layer *layer; /* borrowed */
    uint64_t seed;
};
struct calls_rig_seg { /* to be registered with a card */
    void *base;
    uint64_t bytes;
};
struct calls_rig { /* read by the test */
    struct geometry g;
    struct board *board;
    struct bell *bells;
    struct calls *calls;
    struct amends *amends;
    struct tables *tables;
    uint8_t *acts;
    struct outbox *outbox[MAX_PROCS]; /* by number */
    uint8_t *pool;     /* of the trunk's card, as it shall be on the card */
    uint64_t pool_bytes;
    struct calls_rig_seg seg[32];
    uint32_t n_segs;
    uint64_t *own;     /* by layer * n_experts + expert: the executor's own copy; 0: not there */
    uint32_t *changed; /* by calls_rig_deal: of these entries */
    uint32_t n_changed;
    struct rig_more *more;
};
int calls_rig_open(const struct calls_rig_config *c, struct calls_rig *r, struct err *e);
/* Ends the threads. A worker's error: a line, and -1. */
int calls_rig_close(struct calls_rig *r);

struct rig_deal { /* parts of 100 */
    uint32_t own;     /* on the trunk's card, as far as slots go */
    uint32_t card;    /* on the other */
    uint32_t disk;    /* of the rest */
    uint32_t stale;   /* entries of RAM and of cards whose epoch has passed */
    uint32_t strange; /* of own: the executor's copy does not have it */
    uint64_t late_ns; /* the steward takes shares from owners that are older; 0: never */
};
/* No step is open. */
void calls_rig_deal(struct calls_rig *r, const struct rig_deal *d);

/* The steward takes up no call any more. */
void calls_rig_halt(struct calls_rig *r);

struct calls_rig_counts {
    uint64_t amendments, declined, late, served[RIG_CARDS], net_finds;
    uint64_t work_ns; /* of the first node's worker, between taking up shares and their stamps */
};
void calls_rig_counts(const struct calls_rig *r, struct calls_rig_counts *c);
#ifdef __cplusplus
}
#endif
