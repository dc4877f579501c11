/* Numbered orders from the steward: an expert is copied from its slabs into a slot, or leaves the copy of the
 * table. A thread of its own, so that no item waits for a copy. */
#pragma once
#include "gpu-worker/hits.h"
#include "gpu-worker/pool.h"
#include "gpu-worker/slabs.h"

struct uploader;
/* Borrows all of it until uploader_stop, and begins to register the slabs. hits: the copy of the table, where the trunk
 * is executed here; else NULL. */
int uploader_start(const struct child *c, const struct maps *m, struct card *card, const struct pool *p,
                   struct slabs *slabs, struct hits *hits, struct uploader **out, struct err *e);
/* The executor, after hits_end said 1: a clear can be answered. NULL is allowed. */
void uploader_ring(struct uploader *u);
void uploader_stop(struct uploader *u); /* NULL is allowed */
