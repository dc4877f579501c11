/* A consumer's side of both rings: following them with cursors, and sleeping. What is done with a
 * giving, and its stamps, are the caller's (shm/amends.h).
 *
 *     consumer_open(&config, c);
 *     for (;;) {
 *         while (consumer_call(c, &call, &e) > 0) ...         a copy of a call with a share of ours
 *         while (consumer_amend(c, &am, &call, &e) > 0) ...   an amendment for us, and its call
 *         work; consumer_stamping; stamps; bell_ring of who waits; consumer_rung
 *         nothing to do: wait_round, then consumer_sleep
 *     }
 *
 * Contract of stamping (rules 8 to 10, 16):
 * - Whatever is taken is made or stamped DECLINED, also if it has been given away since; a call's own
 *   givings end with owner_stamp, after the item stamps of those that were declined.
 * - One giving of a share at a time. A later amendment of the same share replaces an unfinished earlier
 *   one, and its stamp answers both: so nothing may read or write for the earlier one after it.
 * - Before work, and while waiting for a stage stamp, the giving's epoch is compared with the header. */
#pragma once
#include "shm/amends.h"
#include "shm/bell.h"
#include "shm/err.h"

struct consumer_config { /* borrowed until consumer_close */
    const struct geometry *geo;
    struct board *board;
    struct bell *bells;
    struct calls *calls;
    struct amends *amends;
    struct outbox *box; /* own */
    uint32_t outbox;    /* own number */
    uint64_t call, amend; /* heads of both rings as they were when the number was handed out: it begins
                           * behind them (rule 12) */
    /* Looked at besides both rings before sleep: an enum look (a stage stamp that is waited for, ...).
     * May be NULL. */
    int (*also)(void *arg);
    void *arg;
};
struct consumer {
    struct consumer_config c;
    uint64_t next_call, next_amend;
    uint64_t amended[CALL_SLOTS]; /* the call whose amendments we took in that slot; 0: none */
};
void consumer_open(const struct consumer_config *config, struct consumer *c);

/* The next call in which a share is ours: 1 and *out a checked copy. 0: none for now. Others are
 * passed over. -EPROTO: a call that makes no sense; the producer is broken. */
int consumer_call(struct consumer *c, struct call *out, struct err *e);
/* The next amendment that names us, with a checked copy of its call: 1; 0: none for now. Amendments of
 * retired calls are passed over. -EPROTO as above. */
int consumer_amend(struct consumer *c, struct amendment *am, struct call *call, struct err *e);
/* Sleeps if the board says that somebody watches, until rung, or for ms (<= 0: the net). Counts sleeps
 * and finds by the net. Nobody watches: a yield. */
void consumer_sleep(struct consumer *c, int ms);

/* Around stamps: from before the first until its waiters were rung (outbox.ringing). */
static inline void consumer_stamping(struct outbox *o)
{
    atomic_fetch_add_explicit(&o->ringing, 1, memory_order_release);
}
static inline void consumer_rung(struct outbox *o)
{
    atomic_fetch_add_explicit(&o->ringing, 1, memory_order_release);
}
