/* How routed experts lie in the slabs: pure arithmetic on the layers' shapes, the nodes and the budget.
 * Everything fits: each expert has a slab of its own, exactly as large as it needs. Else: slabs by size
 * class (pools.h), class after class, as many as the budget holds.
 *
 * Not all slabs of a class are places of the policy: a few are spare. An expert that is read goes into
 * a spare slab; if it is admitted, the slab becomes a place and that of the expert that leaves becomes
 * spare, so that a read never waits until a place has been left. */
#pragma once
#include "coordinator/residency/pools.h"
#include "shm/err.h"
#include "shm/layout.h"

struct slab_plan {
    int resident;                   /* slab number = running number of (layer, expert) */
    uint32_t n_slabs;
    uint64_t node_bytes[MAX_NODES]; /* of a node's slabs segment */
    uint64_t need_all, need_one;    /* bytes for all experts, for the largest one; all nodes */
    /* not resident: */
    struct pools pools;             /* size classes; places: of the policy, without the spare slabs */
    uint32_t spare[POLICY_SIZES];   /* 0 everywhere only if there is one slab in all */
};
/* ram: bytes for the slabs of all nodes together. -ENOSPC, with the size it would take, if not even one
 * expert fits. */
int slab_plan(const struct expert_layer *layer, uint32_t n_layers, uint32_t n_nodes, uint64_t ram,
              struct slab_plan *p, struct err *e);
/* Offset of a slab in its node's segment; resident plans walk the layers, so ask once. */
void slab_offsets(const struct slab_plan *p, const struct expert_layer *layer, uint32_t n_layers,
                  uint32_t n_nodes, uint32_t node, uint64_t *off);
/* Not resident: the size class of a slab; of a layer's experts (0 for a layer without). */
uint32_t slab_class(const struct slab_plan *p, uint32_t slab);
uint32_t slab_class_of_layer(const struct slab_plan *p, const struct expert_layer *l, uint32_t n_nodes);
