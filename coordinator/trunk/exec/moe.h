/* The trunk's side of a layer of experts: makes calls, publishes them, waits for the stamps, sums the
 * rows. The producer of the call ring (shm/calls.h). At most CALLS_IN_FLIGHT calls are open; a layer
 * that needs more room goes out in sub-calls of equal token ranges. */
#pragma once
#include "shm/amends.h"
#include "shm/bell.h"
#include "shm/calls.h"
#include "shm/err.h"
#include "shm/team.h"
#include "shm/timeline.h"

struct moe_counters {
    uint64_t calls, items, disk_items, card_items; /* published; of these: on disk, on a card */
    uint64_t own_items; /* not published: the executor's own card had them */
    uint64_t call_ns; /* from the making of a layer's calls to the end of its sum, the leader's time */
    uint64_t wait_ns; /* of that: it had nothing to do but wait for stamps */
    uint64_t sleeps, net_finds;
};

struct moe_own_call {
    uint32_t layer, used, n_items;
    const struct call_item *item;  /* place, pair0, n_pairs */
    const struct call_pair *pair;
    const float *x;
    float *rows;
};

/* Who wants to know what is chosen; a NULL is nobody. Called by the leader, before the call is published. */
struct moe_told {
    void (*step)(void *arg, uint32_t n_tokens);
    void (*layer)(void *arg, uint32_t layer, uint32_t used, const int32_t *ids);
    void (*expert)(void *arg, uint32_t layer, uint32_t expert, uint32_t n_tokens);
    void (*foreseen)(void *arg, uint32_t layer, const uint32_t *experts, uint32_t n);
    const int *foresee; /* the leader's: not 0 while it is worth the trouble; NULL: never */
    void *arg;
};
/* Experts that lie on the executor's own card are computed here and never published. hit NULL: there is none. */
struct moe_own {
    /* Leader: does it lie there in this step (gpu-worker/hits.h)? Its place; PLACE_NONE. n_tokens of the call
     * use it if so. */
    uint32_t (*hit)(void *arg, uint32_t layer, uint32_t expert, uint32_t n_tokens);
    /* thread's part of the items' rows: pair p of an item goes to rows (token * used + rank, n_embd). x is the
     * call's (n_tokens, n_embd). Every thread that moe_finish has, each with its own `thread`. */
    void (*compute)(void *arg, const struct moe_own_call *c, int thread, int n_threads);
    void *arg;
};
struct moe_config {
    const struct geometry *geo;
    struct board *board;
    struct calls *calls;
    struct amends *amends;
    struct tables *tables;
    struct bell *bells;
    float *acts;
    struct outbox *const *outbox;    /* by outbox number; NULL: none */
    uint32_t owner[MAX_NODES];       /* outbox number of each node's worker */
    uint32_t n_cards;                /* slots from card_slot0[c] on are card c's; its worker: table_card */
    uint32_t card_slot0[MAX_CARDS];
    struct moe_told told;
    struct moe_own own;
    uint64_t first;                  /* number of the first call: 1, or where a dead executor's end */
    int rings;                       /* 1: wakes the owners of its calls, and the steward for items on disk;
                                      * 0: only the steward, which follows every call then (executor in a worker) */
    _Atomic uint64_t *disk_call;     /* rings: last call with items on disk: what the steward looks at */
    struct timeline timeline;              /* the leader's, in lane `lane` */
    enum timeline_lane_of lane;
    int shared;                      /* workers use our cores: yield while waiting */
};
struct moe;
int moe_open(const struct moe_config *c, struct moe **out, struct err *e);
void moe_close(struct moe *m);

/* Is anybody to be told what a later layer will choose? */
int moe_foresees(const struct moe *m);
/* Leader, between a layer's moe_begin and moe_finish: n experts of a later layer that are likely to be
 * chosen, some perhaps twice. Tells those that are not at hand, and rings the steward. */
void moe_foresee(struct moe *m, uint32_t layer, const uint32_t *experts, uint32_t n);

/* Leader: a pass of the trunk begins, n_tokens together. */
void moe_step(struct moe *m, uint32_t n_tokens);
/* Leader: publishes the first calls of a layer for n_tokens vectors x (n_tokens, n_embd) whose experts
 * are ids (n_tokens, used). x and ids stand until moe_finish. */
void moe_begin(struct moe *m, uint32_t layer, uint32_t used, const float *x, const int32_t *ids,
               uint32_t n_tokens);
/* y (n_tokens, n_embd) = sum over places of weights (n_tokens, used) times rows, in the order of rule
 * 28. Called by the whole team (parallel 1) or by the leader alone (parallel 0). */
void moe_finish(struct moe *m, struct team *t, int thread, int n_threads, int parallel,
                const float *weights, float *y);
/* For dumps: the next moe_finish also copies every row to rows (n_tokens, used, n_embd). */
void moe_keep_rows(struct moe *m, float *rows);
const struct moe_counters *moe_counters(const struct moe *m);
