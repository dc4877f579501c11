/* Own hits of the trunk on an emulated card: experts that lie in this very pool are computed by the trunk's
 * own threads, from the slots, with the CPU's kernels, and never published (coordinator/trunk/exec/moe.h,
 * struct moe_own). */
#pragma once
#include "coordinator/trunk/exec/moe.h"
#include "cpu-worker/map.h"
#include "gpu-worker/hits.h"

struct own;
/* Borrows all of it. For at most n_threads threads of an executor; answers: where uses are counted. delay_us:
 * every item waits so long before its expert is computed (tests; 0: not at all). */
int own_open(const struct maps *m, const struct hits *hits, struct answers *answers, int n_threads,
             uint32_t delay_us, struct own **out, struct err *e);
void own_close(struct own *o); /* NULL is allowed */
/* What moe_open wants. */
struct moe_own own_of(struct own *o);
