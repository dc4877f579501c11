/* How long a layer of experts takes for one token, by how many of them have to be read: the real kernels
 * over experts of the layer's shape, the real reads from the model's file, both at once and handed over
 * as in a run (the trunk's team on the same cores waits meanwhile). */
#pragma once
#include <stdint.h>

#include "coordinator/machine.h"
#include "coordinator/model/model.h"
#include "shm/err.h"
#include "shm/layout.h"

enum { LAYER_MOST_USED = 64 };

struct layer_times {
    uint32_t used;                         /* experts a token */
    double seconds[LAYER_MOST_USED + 1];   /* [absent]: a layer of which so many are read, mean */
    uint64_t expert_bytes, read_bytes;     /* of one expert: weights; what is read for it */
    double alone, beside;   /* bytes/s of weights that the team computes: without, and beside reads */
    double disk;            /* bytes/s while all of a layer's experts are read, computing beside */
    int direct;             /* 1: past the page cache */
    int one_by_one;         /* 1: without io_uring; slower than the pager's threads would read */
};
struct layer_config {
    const struct model *m;
    const struct expert_layer *layer; /* all of the model's */
    const struct machine *machine;
    uint32_t at;       /* the layer that is measured */
    uint32_t threads, n_nodes;
    uint64_t memory;   /* bytes that may be taken for experts */
    uint32_t ms;       /* about so long, and at least two of every number */
    int reads;         /* 0: nothing will be read; only seconds[0], alone */
};
int measure_layer(const struct layer_config *c, struct layer_times *out, struct err *e);
