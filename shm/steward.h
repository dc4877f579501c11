/* The steward's side of both rings: what no model and no policy changes. It follows the call ring with
 * its own cursor, knows every giving of every open call and what became of it, says which items and
 * shares need somebody, and publishes amendments. Who gets a share, and which place an expert takes,
 * is the caller's.
 *
 * One thread. Nothing is allocated after steward_open. Rules: shm/model/README.md.
 *
 *     for (;;) {
 *         steward_follow(s, now, &e);                      new calls, new stamps, retired calls
 *         n = steward_needs(s, now, deadline_ns, need, MAX);
 *         for each need: NEED_PLACE  find the expert a place (evict, order the read; when it is read:)
 *                                    steward_grant(s, need.call, need.item, place, epoch, owner)
 *                        NEED_OWNER  steward_give(s, need.call, need.item, need.share, some live outbox that has
 *                        NEED_LATE                the place, need.was.place, need.was.epoch)
 *                        NEED_AGAIN the same, if the place's header is still need.was.epoch
 *         wait: rounds, then bell_sleep(..., steward_look, s, ...)
 *     }
 *
 * Leaving a place (rules 10, 13, 18, 19): clear the entry; mark the header on every node;
 * steward_ring_workers, for a node that sleeps on a stage stamp must look at the header; then wait until
 * steward_place_named(s, place) is 0 (it makes the fence); only then overwrite. */
#pragma once
#include "shm/amends.h"
#include "shm/bell.h"
#include "shm/err.h"
#include "shm/layout.h"

struct steward;

struct steward_config { /* borrowed until steward_close */
    const struct geometry *geo;
    struct board *board;
    struct bell *bells;
    struct calls *calls;
    struct amends *amends;
    int ring_calls;   /* wake the owners of new calls: the trunk's executor does not ring */
    void (*taken)(void *arg, const struct call *c); /* every call it takes up; may be NULL */
    void *arg;
    uint64_t first;   /* number of the first call to follow: where its producer begins, never the head */
};
/* Memory: the geometry's. Hands over *out. */
int steward_open(const struct steward_config *c, struct steward **out, struct err *e);
void steward_close(struct steward *s);

/* A process slot's owner. Workers are named here before any call or amendment names them. */
enum worker_state {
    WORKER_NONE = 0,
    WORKER_LIVE,
    WORKER_DEAD,   /* its shares need somebody else; it may still write */
    WORKER_REAPED, /* quiet: its givings hold no place any more. Its outbox stays mapped while
                    * steward_outbox_named says so. */
};
void steward_worker(struct steward *s, uint32_t outbox, struct outbox *box, enum worker_state state);

/* Looks at everything once: takes up new calls (and rings for them), notes new stamps, drops retired
 * calls (their redirect words become 0). Returns the number of open calls, or -EPROTO with *e set: a
 * call that makes no sense, its producer is broken. now: now_ns(). */
int steward_follow(struct steward *s, uint64_t now, struct err *e);
uint64_t steward_cursor(const struct steward *s); /* the next call that it will take up */

/* One giving: the call's own (am 0) or an amendment. */
struct giving {
    uint64_t am, epoch;
    uint32_t place;
    uint16_t outbox; /* OWNER_DISK: nobody yet */
    uint16_t share;
    uint32_t item;
};
enum need_why {
    NEED_NOTHING = 0,
    NEED_PLACE,     /* no share of the item is awaited from a living owner, and one has no giving, was
                     * DECLINED, or its owner is dead and has not stamped: the whole item wants a place (rules
                     * 12, 18); share is the first that does */
    NEED_OWNER,     /* the share's owner is dead and has not stamped (rules 5, 12), another share of the item
                     * is awaited: where that one's place stands, give it there; else that one will be
                     * DECLINED, and the item wants a place */
    NEED_LATE,      /* the share's owner lives and is older than the deadline */
    NEED_AGAIN,     /* the share was DECLINED, another share of the item is unstamped and may wait for its
                     * stage stamp. Give it again in was.place if that place's header is still was.epoch
                     * (rule 20); else do nothing: the other share's owner finds the same and declines. */
};
struct need {
    enum need_why why;
    uint64_t call;
    uint32_t item, share;
    uint32_t layer, expert;
    struct giving was;    /* the share's present giving */
    uint64_t since;       /* when it was given, ns */
};
/* As of the last steward_follow. deadline_ns 0: nobody is late. Returns how many there are; at most max
 * are filled in, oldest call first, items in order. */
size_t steward_needs(const struct steward *s, uint64_t now, uint64_t deadline_ns, struct need *out,
                     size_t max);

/* Gives one share to a live outbox. Publishes amendments: first those that "that share first" asks for
 * (rule 11; such a share stays with its owner, or goes to this outbox too if its owner is dead), the
 * wanted one last, and rings the new owners. Returns 1; 0: nothing was given, the call has been retired
 * or the share is DONE; -EAGAIN: too many former givings are unanswered (their owners live and are late):
 * try again later. */
int steward_give(struct steward *s, uint64_t call, uint32_t item, uint32_t share, uint32_t outbox,
                 uint32_t place, uint64_t epoch, uint64_t now);
/* Gives every share of the item that is not DONE, share k to owner[k], all in one place (rule 18).
 * Returns the number given, 0 if the call has been retired, or -EAGAIN before the first. */
int steward_grant(struct steward *s, uint64_t call, uint32_t item, uint32_t place, uint64_t epoch,
                  const uint32_t owner[MAX_NODES], uint64_t now);
/* May the item be granted (no share unstamped, one without a giving or DECLINED)? For a read that took
 * its time. 0 too if the call is gone. */
int steward_wants_place(const struct steward *s, uint64_t call, uint32_t item);

/* Is the place named by an unstamped giving of an open call, former owners' included? Makes a seq_cst
 * fence and takes up new calls first (as steward_follow). Negative: as steward_follow. */
int steward_place_named(struct steward *s, uint32_t place, uint64_t now, struct err *e);
/* Wakes every live worker that sleeps. */
void steward_ring_workers(struct steward *s);
/* Items of open calls with a share that this outbox has and has not stamped, as of the last steward_follow.
 * Returns how many; at most max are filled in. */
struct lost {
    uint64_t call;
    uint32_t layer, expert;
};
uint32_t steward_lost(const struct steward *s, uint32_t outbox, struct lost *out, uint32_t max);
/* Does an open call or one of its amendments name the outbox? Then it must stay mapped. */
int steward_outbox_named(const struct steward *s, uint32_t outbox);

/* For bell_sleep: an enum look; arg is the struct steward. Something new: a call, a DECLINED stamp, an
 * answer to an amendment. (Whoever waits for a place that calls name directly comes again by itself.) */
int steward_look(void *arg);

struct steward_counters {
    uint64_t calls;         /* taken up */
    uint64_t passed;        /* retired before it looked */
    uint64_t amendments;    /* published */
    uint64_t first_amended; /* of these, by "that share first" */
    uint64_t taken_back;    /* redirect words made 0: the call had gone */
    uint64_t declines;      /* DECLINED stamps seen as a present giving's answer */
    uint64_t late;          /* givings taken from an owner that lives */
    uint64_t wraps;         /* amendment slots filled again */
};
const struct steward_counters *steward_counters(const struct steward *s);
