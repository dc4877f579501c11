/* How routed experts lie in the slabs: pure arithmetic on the layers' shapes, the nodes and the budget.
 * Everything fits: each expert has a slab of its own, exactly as large as it needs. Else: slabs of one
 * size, as many as the budget holds, each with room for any expert of the file. */
#pragma once
#include "shm/err.h"
#include "shm/layout.h"

struct slab_plan {
    int resident;                   /* slab number = running number of (layer, expert) */
    uint32_t n_slabs;
    uint64_t node_bytes[MAX_NODES]; /* of a node's slabs segment */
    uint64_t slab[MAX_NODES];       /* not resident: bytes of one slab on a node */
    uint64_t need_all, need_one;    /* bytes for all experts, for the largest one; all nodes */
};
/* ram: bytes for the slabs of all nodes together. -ENOSPC, with the size it would take, if not even one
 * expert fits. */
int slab_plan(const struct expert_layer *layer, uint32_t n_layers, uint32_t n_nodes, uint64_t ram,
              struct slab_plan *p, struct err *e);
/* Offset of a slab in its node's segment; resident plans walk the layers, so ask once. */
void slab_offsets(const struct slab_plan *p, const struct expert_layer *layer, uint32_t n_layers,
                  uint32_t n_nodes, uint32_t node, uint64_t *off);
