/* One mapping for all slots of the card. */
#define _GNU_SOURCE
#include "gpu-worker/pool.h"

#include <string.h>
#include <sys/mman.h>

#define POOL_MOST (1ull << 46) /* no card has more; keeps sums from wrapping */

static int check_slot(uint32_t i, const struct card_slot *s, struct err *e)
{
    int bad = s->off > POOL_MOST || s->bytes > POOL_MOST || s->off % SLOT_ALIGN || s->bytes % SLOT_ALIGN;

    return bad ? err_set(e, -EPROTO, "slot %u makes no sense: %llu bytes at %llu", i,
                         (unsigned long long)s->bytes, (unsigned long long)s->off)
               : 0;
}

int pool_take(struct pool *p, struct maps *m, uint32_t card, struct err *e)
{
    for (uint32_t i = 0; i < m->g.n_slots; i++) {
        const struct card_slot *s = table_slot(m->tables, i);
        int rc;
        if (s->card != card)
            continue;
        if ((rc = check_slot(i, s, e)))
            return rc;
        if (!m->n_slots)
            m->slot0 = i;
        if (i - m->slot0 != m->n_slots++)
            return err_set(e, -EPROTO, "the slots of card %u are not one after the other", card);
        if (p->bytes < s->off + s->bytes)
            p->bytes = s->off + s->bytes;
    }
    if (!p->bytes)
        return err_set(e, -EPROTO, "card %u has no slots", card);
    p->base = mmap(NULL, p->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (p->base == MAP_FAILED) {
        p->base = NULL;
        return err_set(e, -ENOMEM, "no memory for a pool of %llu bytes: give less after --cards emu:N:",
                       (unsigned long long)p->bytes);
    }
    m->pool = p->base;
    return 0;
}

void pool_drop(struct pool *p)
{
    if (p->base)
        munmap(p->base, p->bytes);
    memset(p, 0, sizeof *p);
}
