/* One piece of memory for all slots of the card. */
#include "gpu-worker/pool.h"

#include "gpu-worker/storm.h"

#define POOL_MOST (1ull << 46) /* no card has more; keeps sums from wrapping */

static int check_slot(uint32_t i, const struct card_slot *s, struct err *e)
{
    int bad = s->off > POOL_MOST || s->bytes > POOL_MOST || s->off % SLOT_ALIGN || s->bytes % SLOT_ALIGN;

    return bad ? err_set(e, -EPROTO, "slot %u makes no sense: %llu bytes at %llu", i,
                         (unsigned long long)s->bytes, (unsigned long long)s->off)
               : 0;
}

int pool_take(struct pool *p, struct maps *m, uint32_t number, struct card *card, struct err *e)
{
    void *base;
    int rc;

    for (uint32_t i = 0; i < m->g.n_slots; i++) {
        const struct card_slot *s = table_slot(m->tables, i);
        if (s->card != number)
            continue;
        if ((rc = check_slot(i, s, e)))
            return rc;
        if (!m->n_slots)
            m->slot0 = i;
        if (i - m->slot0 != m->n_slots++)
            return err_set(e, -EPROTO, "the slots of card %u are not one after the other", number);
        if (p->bytes < s->off + s->bytes)
            p->bytes = s->off + s->bytes;
    }
    if (!p->bytes)
        return err_set(e, -EPROTO, "card %u has no slots", number);
    if ((rc = card_alloc(card, p->bytes + storm_room(), "the pool of experts", &base, e)))
        return rc;
    m->pool = p->base = base;
    return 0;
}
