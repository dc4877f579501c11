/* The slabs as what copies to the card begin from. A real card copies fast only from memory that is registered
 * with it, and registering takes some 30 to 75 ms a GiB: a thread does it in chunks while the worker works. Other calls
 * of the card wait for the chunk's end, so it begins when the link has been measured. What is not registered (yet, or
 * because it was refused) goes by way of a buffer. */
#pragma once
#include "cpu-worker/map.h"
#include "gpu-worker/card.h"

struct slabs;
/* Nothing is registered yet. Borrows card and m until slabs_close. */
int slabs_open(struct card *card, const struct child *c, const struct maps *m, struct slabs **out, struct err *e);
/* Begins to register; once, any thread. */
int slabs_register(struct slabs *s, struct err *e);
/* Is everything registered, or what will be? Any thread. */
int slabs_settled(const struct slabs *s);
void slabs_close(struct slabs *s); /* NULL is allowed */
/* Of the bytes [off, off + bytes) of node's slabs, which lie in them: how many from off on can go as one copy,
 * and whether straight from there (*straight 1) or by the buffer. Any thread. */
uint64_t slabs_run(const struct slabs *s, uint32_t node, uint64_t off, uint64_t bytes, int *straight);
