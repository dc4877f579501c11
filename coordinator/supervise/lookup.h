/* Rows of big look-up tables (struct prog_table): which ones a step's tokens need, and their bytes. A table lies whole
 * in the trunk's segment, or its rows are read from the file as they are needed, a few KiB each, into a cache by row:
 * the main thread asks for what is not there, the steward orders it (paging.c), the pager reads it into a stage at the
 * end of the trunk's segment, and the steward puts the row into the cache. A token's rows follow from its id and those
 * before it, so they are asked for before its step begins, and a whole prompt's at once. */
#pragma once
#include "coordinator/model/model.h"
#include "coordinator/trunk/exec/program.h"
#include "coordinator/trunk/exec/step.h"
#include "shm/err.h"
#include "shm/layout.h"

#define LOOKUP_ORDERS 8u /* out at a time, each of as many rows as an order has pieces */

/* Bytes of what the whole of a table takes, of the stage of all tables, of the smallest cache for passes of so many
 * tokens, of one row in it (the largest). 0 where the program has no tables. */
struct lookup_needs {
    uint64_t whole, stage, least, row;
};
struct lookup_needs lookup_needs(const struct program *p, const struct model *m, uint32_t max_tokens);

struct lookup_config { /* borrowed until lookup_close */
    const struct model *m;
    const struct program *prog;
    struct board *board;
    struct bell *bells;
    uint32_t max_tokens, n_ctx, n_seqs;
    uint8_t *trunk;            /* the segment's payload */
    const uint64_t *trunk_off; /* by tensor: LOOKUP_PAGED, or where its first block lies */
    uint64_t stage;            /* where the stage lies in it; a multiple of 4096 */
    uint64_t cache_bytes;
};
#define LOOKUP_PAGED UINT64_MAX
struct lookup;
int lookup_open(const struct lookup_config *c, struct lookup **out, struct err *e);
void lookup_close(struct lookup *l); /* NULL is allowed */

/* ---- the main thread ---- */

/* Tokens ids[0 .. n) are those of sequence slot seq, and from `from` (at most n) on they will be read: their rows are
 * asked for, as far as the cache has room beside a pass's, and behind whatever a step waits for. */
void lookup_foresee(struct lookup *l, const uint32_t *ids, size_t n, size_t from, uint32_t seq);
/* The step's rows are asked for. */
void lookup_ask(struct lookup *l, const struct step *s);
/* ... and awaited: exec_config's and trunk_host_config's rows; arg: the struct lookup. */
void lookup_rows(void *l, const struct step *s, struct step_rows *out);

struct lookup_counters {
    uint64_t rows, hits;   /* of paged tables: that steps needed; of these, in the cache when they were asked for */
    uint64_t reads, bytes; /* rows read, bytes of their blocks */
    uint64_t wait_ns;      /* the main thread waited */
    uint64_t cached;       /* rows that the cache can hold */
};
void lookup_counters(const struct lookup *l, struct lookup_counters *c);

/* ---- the steward ---- */

/* Something to order, and a place of the stage for it? Any thread. */
int lookup_wants(const struct lookup *l);
/* The next order but for its number, and which of the stage's it is (below LOOKUP_ORDERS); 0: none. */
int lookup_next(struct lookup *l, struct order *o, uint32_t *which);
/* It was answered: its rows are in their places. */
void lookup_came(struct lookup *l, uint32_t which);
