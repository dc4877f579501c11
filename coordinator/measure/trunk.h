/* How long the trunk of a model takes for a token on this machine: its own program, executed by its own
 * executor over weights of the right types and shapes, without the experts. */
#pragma once
#include <stdint.h>

#include "coordinator/machine.h"
#include "coordinator/model/model.h"
#include "coordinator/trunk/exec/program.h"
#include "kernels/attention/attention.h"
#include "shm/err.h"

struct trunk_time {
    double seconds; /* of one token, mean; a short context */
    uint64_t bytes; /* of weights that it reads */
};
/* memory: bytes that may be taken for weights; matrices of one shape take turns where they do not all
 * fit. ms: about so long, and at least three tokens. */
int measure_trunk(const struct model *m, const struct program *prog, const struct machine *machine,
                  uint32_t threads, enum kv_type kv, uint64_t memory, uint32_t ms, struct trunk_time *out,
                  struct err *e);
