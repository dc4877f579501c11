/* Following both rings. Never waits for anybody: a ring without news is the caller's to wait for.
 */
#include "shm/consumer.h"

#include <sched.h>

#define COUNT(c, what)                                                                             \
    atomic_store_explicit(&(c)->c.box->count.what,                                                 \
                          atomic_load_explicit(&(c)->c.box->count.what, memory_order_relaxed) + 1, \
                          memory_order_relaxed)

void consumer_open(const struct consumer_config *config, struct consumer *c)
{
    *c = (struct consumer){
        .c = *config, .next_call = config->call + 1, .next_amend = config->amend + 1};
}

/* Over calls in which nothing is ours. 1: the next one is. */
static int skip_calls(struct consumer *c)
{
    int ours;

    for (;; c->next_call++) {
        enum ring_look look = call_peek(c->c.geo, c->c.calls, c->next_call, c->c.outbox, &ours);
        if (look == RING_NOT_YET)
            return 0;
        if (look == RING_TAKEN && ours)
            return 1;
    }
}

static int skip_amends(struct consumer *c)
{
    struct amendment am = {0};

    for (;; c->next_amend++) {
        enum ring_look look = amend_copy(c->c.geo, c->c.amends, c->next_amend, &am);
        if (look == RING_NOT_YET)
            return 0;
        if (look == RING_TAKEN && am.outbox == c->c.outbox)
            return 1;
    }
}

/* The first giving of a call in a slot where amendments of an earlier one were stamped. */
static void clear_old_stamps(struct consumer *c, uint64_t call)
{
    uint64_t *amended = &c->amended[call % CALL_SLOTS];

    if (!*amended || *amended == call)
        return;
    item_stamps_clear(c->c.geo, c->c.box, call);
    *amended = 0;
}

int consumer_call(struct consumer *c, struct call *out, struct err *e)
{
    while (skip_calls(c)) {
        uint64_t n = c->next_call++;
        int rc;
        if (call_copy(c->c.geo, c->c.calls, n, out) != RING_TAKEN) {
            COUNT(c, dropped);
            continue;
        }
        rc = call_check(c->c.geo, out, e);
        if (rc)
            return rc;
        clear_old_stamps(c, n);
        atomic_store_explicit(&c->c.box->cursor, n, memory_order_relaxed);
        return 1;
    }
    atomic_store_explicit(&c->c.box->cursor, c->next_call - 1, memory_order_relaxed);
    return 0;
}

int consumer_amend(struct consumer *c, struct amendment *am, struct call *call, struct err *e)
{
    const struct geometry *g = c->c.geo;

    while (skip_amends(c)) {
        uint64_t n = c->next_amend++;
        int rc;
        if (amend_copy(g, c->c.amends, n, am) != RING_TAKEN) {
            COUNT(c, dropped);
            continue;
        }
        if (am->seq != n || am->item >= g->max_items || am->share >= g->n_nodes ||
            am->place >= geometry_places(g))
            return err_set(
                e, -EPROTO, "amendment %llu makes no sense: %llu, item %u, share %u, place %u",
                (unsigned long long)n, (unsigned long long)am->seq, am->item, am->share, am->place);
        if (call_copy(g, c->c.calls, am->call, call) != RING_TAKEN) {
            COUNT(c, dropped); /* its call is retired */
            continue;
        }
        rc = call_check(g, call, e);
        if (!rc && am->item >= call->head.n_items)
            rc = err_set(e, -EPROTO, "amendment %llu: call %llu has no item %u",
                         (unsigned long long)n, (unsigned long long)am->call, am->item);
        if (rc)
            return rc;
        clear_old_stamps(c, am->call);
        c->amended[am->call % CALL_SLOTS] = am->call;
        atomic_store_explicit(&c->c.box->amend_cursor, n, memory_order_relaxed);
        return 1;
    }
    atomic_store_explicit(&c->c.box->amend_cursor, c->next_amend - 1, memory_order_relaxed);
    return 0;
}

/* The order of the reads matters: first the word, then how far its ringers have come. */
static int look(void *arg)
{
    struct consumer *c = arg;
    struct board *b = c->c.board;

    if (skip_calls(c))
        return atomic_load_explicit(&b->calls_rung, memory_order_acquire) >= c->next_call ||
                       atomic_load_explicit(&b->steward_rung, memory_order_acquire) >= c->next_call
                   ? LOOK_RUNG
                   : LOOK_FOUND;
    if (skip_amends(c))
        return atomic_load_explicit(&b->amends_rung, memory_order_acquire) >= c->next_amend
                   ? LOOK_RUNG
                   : LOOK_FOUND;
    if (!atomic_load_explicit(&b->watch, memory_order_acquire))
        return LOOK_FOUND;
    return c->c.also ? c->c.also(c->c.arg) : LOOK_NOTHING;
}

void consumer_sleep(struct consumer *c, int ms)
{
    if (!atomic_load_explicit(&c->c.board->watch, memory_order_acquire)) {
        sched_yield(); /* nobody would wake us */
        return;
    }
    COUNT(c, sleeps);
    if (bell_sleep(&c->c.bells[outbox_home(c->c.outbox)], &c->c.box->asleep, look, c, ms) == BELL_NET)
        COUNT(c, net_finds);
}
