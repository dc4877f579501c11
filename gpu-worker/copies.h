/* Bytes from slabs to the pool of a card and back, at a pace that leaves the link to a decode in flight. One
 * thread. */
#pragma once
#include "gpu-worker/pool.h"
#include "gpu-worker/slabs.h"

struct copies;
/* On the thread that will use it. On a real card it measures the link, some milliseconds, and again with the first copy
 * beside a decode. Borrows all until copies_close. */
int copies_open(struct card *card, const struct maps *m, const struct pool *p, const struct slabs *s,
                struct copies **out, struct err *e);
void copies_close(struct copies *c); /* NULL is allowed */
double copies_link(const struct copies *c); /* bytes a second; 0: emulated */
/* Begins to copy bytes from byte off of node's slabs to byte dst of the pool: both ranges were checked. Waits
 * until all of it has begun, which the pace decides. */
int copies_put(struct copies *c, uint32_t node, uint64_t off, uint64_t dst, uint64_t bytes, struct err *e);
/* The other way round, into slabs that are mapped writable. */
int copies_get(struct copies *c, uint32_t node, uint64_t off, uint64_t src, uint64_t bytes, struct err *e);
/* What was put and got before copies_mark(c, i, e) is over: copies_over says 1, else 0; negative: *e. i < COPIES_MARKS. */
enum { COPIES_MARKS = 2 };
int copies_mark(struct copies *c, unsigned i, struct err *e);
int copies_over(struct copies *c, unsigned i, struct err *e);
/* A little while, as long as a copy of a megabyte takes. */
void copies_nap(void);
