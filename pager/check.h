/* Is an order possible? Everything in it was written by another process; a value that fails here
 * means that the two programs disagree, and the pager ends rather than write somewhere else. */
#pragma once
#include <stdint.h>

#include "shm/err.h"
#include "shm/layout.h"

struct check_bounds {
    uint32_t n_shards;
    const uint64_t *shard_bytes; /* of each model file when it was opened */
    uint32_t n_segs;             /* 1 + n_nodes */
    const uint64_t *seg_bytes;   /* payload; 0: this segment was not mapped */
};

/* o is a private copy. 0, or -EPROTO with a line that names the order, the piece and the value. */
int check_order(const struct order *o, uint64_t number, const struct check_bounds *b,
                struct err *e);
