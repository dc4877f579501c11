/* Uploads: numbered orders from the steward, each an expert copied from its slabs into a slot. A thread
 * of its own, so that no item waits for a copy. */
#pragma once
#include "gpu-worker/pool.h"

struct uploader;
/* Borrows all of it until uploader_stop. */
int uploader_start(const struct child *c, const struct maps *m, const struct pool *p, struct uploader **out,
                   struct err *e);
void uploader_stop(struct uploader *u); /* NULL is allowed */
