/* Nothing of a run depends on it: what it writes nobody reads. */
#include "gpu-worker/storm.h"

#include <stdio.h>
#include <stdlib.h>

#include "shm/bell.h"

#define ROOM (16ull << 20) /* about an expert of the larger models */

static int asked(unsigned *on, unsigned *off)
{
    const char *v = getenv("CONCLAVE_CARD_STORM");

    return v && sscanf(v, "%u,%u", on, off) == 2 && *on;
}

uint64_t storm_room(void)
{
    unsigned on, off;

    return asked(&on, &off) ? ROOM : 0;
}

void storm_begin(struct storm *s)
{
    unsigned on, off;

    *s = (struct storm){.began_ns = now_ns()};
    if (!asked(&on, &off))
        return;
    s->on_ns = on * 1000000ull;
    s->off_ns = off * 1000000ull;
}

int storm_due(const struct storm *s)
{
    return s->on_ns && (now_ns() - s->began_ns) % (s->on_ns + s->off_ns) < s->on_ns;
}

int storm_ms(const struct storm *s)
{
    uint64_t turn = s->on_ns + s->off_ns;

    return !s->on_ns || storm_due(s) ? 0 : (int)((turn - (now_ns() - s->began_ns) % turn) / 1000000u) + 1;
}

int storm_put(struct storm *s, struct copies *c, const struct maps *m, const struct pool *p, uint64_t *bytes, struct err *e)
{
    uint64_t all = m->slabs_bytes[0], n = all < ROOM ? all : ROOM, off = s->at % (all - n + 1) / 4096 * 4096;

    s->at += n;
    *bytes = n;
    return copies_put(c, 0, off, p->bytes, n, e);
}
