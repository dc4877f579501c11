/* The steward's thread with the paging of experts: follows the call ring, gives items whose expert is
 * on disk a place, has the pager read it, grants it by amendments. The only writer of the tables, the
 * amendments and (after loading) the orders. */
#pragma once
#include "coordinator/residency/lru.h"
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
    _Atomic uint64_t *used; /* last use by layer * n_experts + expert; written by the trunk */
    _Atomic uint64_t *disk_call; /* last call that was published with items on disk */
    struct watch **watch;   /* for what cannot go on */
    const struct pieces *pieces;
};
struct paging;
/* Starts the thread; board->watch is 1 from then on, so workers may sleep. */
int paging_start(const struct paging_config *c, struct paging **out, struct err *e);
void paging_stop(struct paging *p);
const struct steward_counters *paging_counters(const struct paging *p);
