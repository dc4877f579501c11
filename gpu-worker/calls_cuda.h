/* The experts' calls of a trunk on a card: what coordinator/trunk/exec/moe.c does on the CPU, as
 * launches on the trunk's stream that may be recorded. Which experts a layer needs is read on the card;
 * those that lie in this card's slots become items of the fused expert, the others a call in the ring,
 * which lies in mapped host memory. Nothing is published when there are no others.
 *
 *   calls_cuda_publish    a layer: own items and their slots; the call of the others
 *   (the fused expert over the own items)
 *   calls_cuda_sum        until every share of the call is made; weights times rows, own and others', rule 28;
 *                         the call is retired
 *
 * A step's first and last node take the own table's changes and give the choice and the counters to the host
 * (calls_cuda.cuh).
 *
 * One call is open at a time. Rules of the words: shm/model/README.md. Launchers allocate nothing and
 * return 0 or a cudaError_t. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "kernels/stream.h"

CUDA_BEGIN
#include "kernels/expert/expert_cuda.h"
#include "shm/err.h"
#include "shm/layout.h"

struct calls_cuda_config {
    int device;
    const struct geometry *geo; /* copied */
    /* payloads of segments, mapped and registered with the card by the caller; outbox by number (outbox_put),
     * NULL: none */
    struct calls *calls;
    void *acts;
    const struct amends *amends;
    struct tables *tables;
    struct outbox *const *outbox;
    uint32_t owner[MAX_NODES]; /* outbox number of each node's worker */
    uint32_t n_cards;          /* slots from card_slot0[c] on are card c's; its worker: table_card */
    uint32_t card_slot0[MAX_CARDS];
    const void *pool;          /* this card's slots, device memory; slot i of the tables lies at its `off` */
    uint32_t slot0, n_slots;   /* which of the tables' slots are here; n_slots 0: none */
    uint64_t first;            /* number of the first call */
    uint64_t limit_ms;         /* a call that takes longer fails the step */
};

struct calls_cuda;
/* Allocates everything. The card is current. */
int calls_cuda_open(const struct calls_cuda_config *c, struct calls_cuda **out, struct err *e);
void calls_cuda_close(struct calls_cuda *x); /* NULL is allowed */

/* Before a step: n entries of the own table that have changed, at[i] = layer * n_experts + expert, all by the
 * same in entry (gpu-worker/hits.h); 0: the expert is not here. */
void calls_cuda_changes(struct calls_cuda *x, const uint32_t *at, size_t n, const uint64_t *entry);
/* At any time, any thread: waits give up, whoever watches has decided. */
void calls_cuda_stop(struct calls_cuda *x);

/* ---- a step's launches, in this order ---- */
struct calls_cuda_layer {
    uint32_t layer, used;
    uint32_t n_tokens; /* at most the geometry's max_tokens (calls_cuda_own: any number) */
    uint32_t n_embd;
    const uint32_t *ids; /* (n_tokens, used) */
    const float *x;      /* (n_tokens, n_embd) */
    float *rows;         /* (n_tokens * used, n_embd): the own rows */
    uint32_t pair0;      /* of the pass, before these tokens: where the choice is noted */
    uint32_t by_host;    /* the launches are not recorded: sum and gather wait here, on the host, before they launch.
                            Then no kernel stands on the card while its own worker's pass is wanted there: beside one
                            that stood, passes of many launches did not end */
};
/* items (n_tokens * used at most), *n_items and slots (as many) for the fused expert: item i's slot is
 * number i of slots, its row is row token * used + rank of l->rows. */
int calls_cuda_publish(struct calls_cuda *x, const struct calls_cuda_layer *l, struct expert_item *items,
                       uint32_t *n_items, struct expert_slot *slots, cudaStream_t s);
/* Items of what is here alone, of more tokens than a call has: a pass of several calls has its own rows made at once,
 * and does without the items that each call's publishing makes. */
int calls_cuda_own(struct calls_cuda *x, const struct calls_cuda_layer *l, struct expert_item *items, uint32_t *n_items,
                   struct expert_slot *slots, cudaStream_t s);
/* Waits, sums, retires. y (n_tokens, n_embd), ldy floats apart. w: (n_tokens, used). */
int calls_cuda_sum(struct calls_cuda *x, const struct calls_cuda_layer *l, const float *w, float *y, size_t ldy,
                   cudaStream_t s);
/* Instead: waits, the others' rows come to their places in l->rows, retires. */
int calls_cuda_gather(struct calls_cuda *x, const struct calls_cuda_layer *l, cudaStream_t s);
/* Loads the kernels into the current context. */
int calls_cuda_load(void);

/* ---- after the step's answer ---- */
enum calls_cuda_why { CALLS_FINE, CALLS_STOPPED, CALLS_LATE };
/* Did a wait give up? *e says at which call, layer and item; the executor is to be given up. */
int calls_cuda_failed(const struct calls_cuda *x, struct err *e);
/* What the layer chose in the last step: ids (tokens, used). */
const uint32_t *calls_cuda_choice(const struct calls_cuda *x, uint32_t layer);
struct calls_cuda_counters {
    uint64_t calls, items, disk_items, card_items, own_items; /* items: of calls; own: (expert, <= 8 tokens) */
    uint64_t wait_ns;  /* from a wait's first look to its last, by the card's clock or the host's */
    uint64_t looks;    /* the card's slow looks: redirects and item stamps */
};
struct calls_cuda_counters calls_cuda_counters(const struct calls_cuda *x);
CUDA_END
