/* How RAM is cut for experts of different sizes: layers whose experts are about as large share a
 * size class, and every class gets places for the same part of its experts. Pure arithmetic.
 *
 * The same part, because a token uses as many experts of one layer as of another. What the parts
 * leave unfair, the policy mends: a smaller expert may take a larger place (policy.h), never the
 * other way. */
#pragma once
#include <stdint.h>

#include "coordinator/residency/policy.h"
#include "shm/err.h"
#include "shm/layout.h"

struct pools {
    uint32_t n;                             /* size classes, smallest first; 1 to POLICY_SIZES */
    uint32_t places[POLICY_SIZES];          /* at most one for each expert of the class */
    uint32_t experts[POLICY_SIZES];         /* of its layers */
    uint64_t slab[POLICY_SIZES][MAX_NODES]; /* bytes of a place on a node; no smaller than those of
                                               a smaller class */
    uint64_t bytes[POLICY_SIZES];           /* of a place, all nodes */
    uint64_t node_bytes[MAX_NODES];         /* of all places on a node */
};
/* ram: bytes for all nodes together. n_nodes 0: places are a card's slots
 * (slot_bytes), in one part, slab[s][0]. size_of: n_layers values, the class of each layer (0 for one without
 * experts), or NULL. A place is at most 1/16 larger than its class's experts, unless there are more
 * than POLICY_SIZES sizes. -ENOSPC, with the size it would take, if the largest expert does not
 * fit. */
int pools_plan(const struct expert_layer *layer, uint32_t n_layers, uint32_t n_nodes, uint64_t ram,
               uint8_t *size_of, struct pools *p, struct err *e);
