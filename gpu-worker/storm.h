/* For measuring: copies that nobody ordered, from the slabs to memory behind the pool's slots, at the pace and in the
 * pieces of uploads. So it is seen what uploads cost a decode while every expert stays where it is.
 * CONCLAVE_CARD_STORM=ON,OFF in the environment: for ON milliseconds, then none for OFF, from the worker's start on.
 * In a timeline they are uploads of layer 0, expert 0. */
#pragma once
#include "gpu-worker/copies.h"

struct storm {
    uint64_t on_ns, off_ns; /* 0, 0: none */
    uint64_t began_ns, at;
};
/* Bytes behind the slots that the storm needs; 0: there is none. */
uint64_t storm_room(void);
void storm_begin(struct storm *s);
/* Is a copy due? */
int storm_due(const struct storm *s);
/* Milliseconds until one is; 0: it is now, or never. */
int storm_ms(const struct storm *s);
/* One; it has begun on return. room: as storm_room said, behind p->bytes. *bytes: of it. */
int storm_put(struct storm *s, struct copies *c, const struct maps *m, const struct pool *p, uint64_t *bytes, struct err *e);
