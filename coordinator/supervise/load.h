/* Loading at the start: the trunk's tensors, and all experts where they fit, through the pager. */
#pragma once
#include "coordinator/model/model.h"
#include "coordinator/supervise/lookup.h"
#include "coordinator/supervise/paging.h"

struct load_config {
    const struct model *m;
    const struct geometry *geo;
    struct board *board;
    struct tables *tables;
    struct orders *orders;
    struct pager_box *pager;
    struct bell *bells;
    struct worker *worker; /* the pager, for its error texts */
    const struct pieces *pieces;
    const uint64_t *trunk_off; /* by trunk tensor: where its first block goes in the trunk segment; or LOOKUP_PAGED */
    int resident;              /* experts too */
    int progress;              /* a bar on stderr */
};
/* Orders everything, waits for the answers, sets headers and entries of the experts. Returns bytes read
 * in *bytes, in *again how many orders were read from a pack's original. A read that fails is the pager's
 * own line. */
int load_all(const struct load_config *c, uint64_t *bytes, uint64_t *again, struct err *e);

/* Waits until the hot experts of earlier runs are read, with a bar on stderr; the steward orders them. */
void load_warm(const struct paging *p, int progress);
