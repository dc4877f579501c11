/* The steward's thread with the paging of experts: follows the call ring, gives items whose expert is
 * on disk a place, has the pager read it, grants it by amendments. The only writer of the tables, the
 * amendments and (after loading) the orders. Which experts stay at hand is residency/policy.h's to say. */
#pragma once
#include "coordinator/residency/ahead.h"
#include "coordinator/residency/slabs.h"
#include "coordinator/residency/uses.h"
#include "coordinator/supervise/cards.h"
#include "coordinator/supervise/keep_heat.h"
#include "coordinator/supervise/lookup.h"
#include "coordinator/supervise/pieces.h"
#include "coordinator/supervise/watch.h"
#include "shm/orders.h"
#include "shm/size.h"
#include "shm/steward.h"

struct paging_config { /* borrowed until paging_stop */
    const struct geometry *geo;
    struct board *board;
    struct bell *bells;
    struct calls *calls;
    struct amends *amends;
    struct tables *tables;
    struct orders *orders;
    struct pager_box *pager;
    uint32_t pager_outbox;
    uint32_t owner[MAX_NODES];
    struct outbox *const *outbox;
    _Atomic uint64_t *disk_call; /* last call that was published with items on disk */
    struct watch **watch;   /* for what cannot go on */
    const struct pieces *pieces;
    const struct slab_plan *slabs;
    enum policy_kind policy;
    /* The trunk's executor is a worker: it rings the steward alone, who rings the owners, and tells `taken`
     * of every call. NULL: the executor is here and rings them itself. */
    void (*taken)(void *arg, const struct call *c);
    void *arg;
    struct uses *uses;      /* of the trunk's calls; NULL where every expert is resident and no card */
    const struct card_plan *cards;        /* n_cards 0: none */
    const uint8_t *card_size_of;
    const struct card_channel *card;      /* of each */
    struct life *life;                    /* of each card's workers */
    const _Atomic uint64_t *step;         /* cards_config */
    int trunk_card;                       /* the one that hosts the trunk; -1 */
    const _Atomic uint32_t *step_open;    /* while it is not 0 calls may come that nobody rings for; NULL: never */
    uint32_t churn_us;                    /* tests: cards_config */
    int cards_measured;                   /* their rates mean something: they are real */
    const struct spread_rates *card_rates; /* tests: taken for measured; NULL */
    int own_cpu;                          /* 1 + the one that the thread shares with others that look; 0: any */
    void (*own_uses)(void *arg);          /* tells `uses` of what no call tells; NULL */
    const struct ahead *ahead; /* what the trunk foresees; NULL: nothing is read ahead */
    struct heat_keeper *heat; /* NULL: nothing is known from earlier runs, and nothing kept */
    struct lookup *lookup;    /* rows of tables that lie in the file; NULL: none */
};
struct paging;
/* Starts the thread; board->watch is 1 from then on, so workers may sleep. Experts that the heat
 * keeper knows are read into the policy's places from then on, the hottest first, behind whatever is
 * demanded; one that is demanded meanwhile is raised, and places that are taken by then stay so. */
int paging_start(const struct paging_config *c, struct paging **out, struct err *e);
/* Ends the thread; the heat keeper has the heat then. */
void paging_stop(struct paging *p);
const struct steward_counters *paging_counters(const struct paging *p);

struct paging_stats { /* since the start */
    uint64_t reads;   /* of experts that were demanded */
    uint64_t moves;   /* experts that became the policy's, not counting warm ones */
    uint64_t warm_reads, warm_bytes; /* by heat, at the start */
    uint64_t warm_total; /* bytes of all that will be */
    uint64_t warm_raised; /* of warm_reads: demanded before they had come */
    uint64_t ahead_used, ahead_late; /* read ahead and called for: there in time, on the way */
    uint64_t ahead_wasted, ahead_dropped; /* and not called for: read, not begun */
    uint64_t lost_uses;  /* the policy was not told */
    uint64_t again;      /* experts whose block was damaged, read from a pack's original */
    uint32_t most_open;  /* demanded reads open at a time */
    uint32_t places, spare, residents; /* slabs of the policy, others; experts of the policy */
    int warm;            /* warm reads are still to come */
    struct cards_stats cards;
};
/* Any thread. */
void paging_stats(const struct paging *p, struct paging_stats *s);

/* Bytes that an order asks for. */
static inline uint64_t order_bytes(const struct order *o)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < o->n_pieces; i++)
        n += o->piece[i].bytes;
    return n;
}
