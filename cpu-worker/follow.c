/* Reads the two rings into the shares. What shm/consumer.h does not check of the numbers that come
 * from there is checked here, so that the rest of the program can use them as indices; what is
 * impossible ends the process, since nobody who keeps the rules can have written it. */
#include "cpu-worker/share.h"

#define U(x) ((unsigned long long)(x))

/* Beyond call_check: what the layer says. */
static int check_call(const struct maps *m, const struct call *c, struct err *e)
{
    const struct call_head *h = &c->head;
    uint64_t pairs = 0;

    if (!m->layer[h->layer].n_experts)
        return err_set(e, -EPROTO, "call %llu: layer %u has no experts", U(h->seq), h->layer);
    for (uint32_t i = 0; i < h->n_items; i++)
        pairs += c->items[i].n_pairs;
    if (pairs > h->n_pairs) /* scratch memory is counted by the call's pairs */
        return err_set(e, -EPROTO, "call %llu: its items have %llu pairs, the call has %u",
                       U(h->seq), U(pairs), h->n_pairs);
    return 0;
}

/* What we are to compute with. */
static int check_item(const struct maps *m, const struct call *c, uint32_t item, uint32_t place,
                      struct err *e)
{
    const struct call_item *it = &c->items[item];
    const struct layer *l = &m->layer[c->head.layer];

    if (!maps_has_place(m, place) || it->expert >= l->n_experts || !it->n_pairs ||
        it->n_pairs > c->head.n_tokens)
        return err_set(e, -EPROTO, "call %llu, item %u: expert %u in place %u, %u pairs",
                       U(c->head.seq), item, it->expert, place, it->n_pairs);
    for (uint32_t k = 0; k < m->g.n_nodes; k++)
        if (!maps_rows(m, l, k, place, it->expert, MAT_GATE))
            return err_set(e, -EPROTO, "place %u does not lie in the slabs of node %u", place, k);
    return 0;
}

/* The call's slot, holding the copy that was just taken (the spare one), unless it does already:
 * a call's own givings and its amendments may come in either order. */
static struct open_call *slot_of_spare(struct shares *s)
{
    struct open_call *c = &s->call[s->spare.head.seq % CALL_SLOTS];
    struct call old = c->copy;

    if (old.head.seq == s->spare.head.seq)
        return c;
    shares_forget(s, c); /* its call is retired: the ring's slot moved on */
    c->declined = c->counted = 0;
    c->copy = s->spare;
    s->spare = old;
    return c;
}

/* 1: took one, 0: none there, negative: *e */
static int take_call(struct shares *s, struct err *e)
{
    const struct maps *m = s->m;
    int rc = consumer_call(&s->consumer, &s->spare, e);
    struct open_call *c;

    if (rc <= 0)
        return rc;
    if (s->spare.head.seq != s->consumer.next_call - 1)
        return err_set(e, -EPROTO, "call %llu says that it is call %llu",
                       U(s->consumer.next_call - 1), U(s->spare.head.seq));
    rc = check_call(m, &s->spare, e);
    if (rc)
        return rc;
    c = slot_of_spare(s);
    for (uint32_t i = 0; i < c->copy.head.n_items; i++) {
        const struct call_item *it = &c->copy.items[i];
        int checked = 0;
        for (uint32_t k = 0; k < m->g.n_nodes; k++) {
            if (it->owner[k] != m->self)
                continue;
            if (!checked && (rc = check_item(m, &c->copy, i, it->place, e)))
                return rc;
            checked = 1;
            share_give(s, c, i, k, 0, it->place, it->epoch);
        }
    }
    return 1;
}

static int take_amendment(struct shares *s, struct err *e)
{
    struct amendment a;
    struct open_call *c;
    int rc = consumer_amend(&s->consumer, &a, &s->spare, e);

    if (rc <= 0)
        return rc;
    if (s->spare.head.seq != a.call)
        return err_set(e, -EPROTO, "call %llu says that it is call %llu", U(a.call),
                       U(s->spare.head.seq));
    rc = check_call(s->m, &s->spare, e);
    if (!rc)
        rc = check_item(s->m, &s->spare, a.item, a.place, e);
    if (rc)
        return rc;
    c = slot_of_spare(s);
    share_give(s, c, a.item, a.share, a.seq, a.place, a.epoch);
    return 1;
}

int shares_follow(struct shares *s, struct err *e)
{
    int rc;

    while ((rc = take_call(s, e)) > 0)
        ;
    while (!rc && (rc = take_amendment(s, e)) > 0)
        rc = 0;
    shares_ring(s);
    return rc;
}
