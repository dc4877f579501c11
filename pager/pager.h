/* The pager's context and its life: receive the model files, follow the orders, end.
 *
 * Threads: the main thread waits for the control socket, the follower for orders; the form of
 * reading (io.h) has its own; the finisher copies and hashes, if an order wants that. `lock` guards jobs and stopping and what a form says it guards;
 * everything else is constant once reading has begun, or atomic. */
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "pager/jobs.h"
#include "pager/tune.h"
#include "shm/child.h"
#include "shm/err.h"
#include "shm/layout.h"

#define PAGER_MAX_SHARDS 99999u /* the names of split files have five digits */

struct pager_file {
    int fd; /* owned; -1: not received */
    int direct;
    char name[240]; /* for messages, cut */
};

struct pager {
    const struct child *child;
    struct geometry geo; /* a copy */
    const struct board *board;
    struct orders *orders;
    struct bell *bells;
    struct pager_box *box;

    uint32_t n_shards;
    struct pager_file *file; /* n_shards, owned */
    uint64_t *shard_bytes;   /* likewise: each file's size when it was opened */
    uint32_t n_segs;
    uint8_t *seg_base[1 + MAX_NODES];  /* by order_piece.seg; NULL: not mapped */
    uint64_t seg_bytes[1 + MAX_NODES]; /* whole pages */

    struct timeline timeline; /* lane TIMELINE_LEADER: lock */
    pthread_mutex_t lock;
    struct jobs jobs;     /* lock */
    struct tune tune;     /* lock */
    int stopping;         /* lock: no read is begun any more */
    pthread_cond_t quiet; /* lock: stopping, and no read is out */
    int has_finisher, finish_end; /* lock */
    pthread_cond_t work;          /* lock: jobs_work_next has something, or finish_end */
    pthread_t finisher;
    uint8_t *bounce; /* lock; the form's depth times READ_BYTES; NULL: no order needed it yet */

    const struct io_form *form;
    void *io; /* the form's own */

    uint64_t next;      /* the follower's: number of the next order */
    _Atomic int ending; /* main -> follower, then its bell */
    int trouble_fd;     /* eventfd: a thread cannot go on -> main */
    struct err trouble; /* lock: why */
};

/* Serves until it is told to end. 0: told to (CTL_QUIT, SIGTERM, the parent has gone); a negative
 * code with *e set otherwise. In both cases no read is out when it returns. Takes SIGTERM for
 * itself (blocked, read from a signalfd). */
int pager_run(const struct child *c, struct err *e);

/* Any thread: the program cannot go on, main ends it. With the lock held. */
void pager_trouble(struct pager *p, const struct err *e);

/* --- follow.c ----------------------------------------------------------------------------------
 */

/* The follower's thread: takes orders by number and hands their reads to the form, until ending. */
void *follow_orders(void *pager);
/* With the lock held: reads are as p->tune says from now on. */
void follow_size(struct pager *p);
/* For the forms of reading, with the lock held: the next read, or NULL (none, no place, stopping).
 */
struct job_read *follow_next(struct pager *p);
/* Where a read's bytes go. */
uint8_t *follow_place(const struct pager *p, const struct job_read *r);
/* Likewise: the read's result. Counts, tells, answers the order if it has ended. 0: the read is
 * over; 1: make it again (it was changed); 2: the same after RETRY_NAP_US. */
int follow_result(struct pager *p, struct job_read *r, int64_t res);
/* With the lock held: counts, tells and answers what a result says besides `again`. */
void follow_outcome(struct pager *p, const struct job_result *res, const struct order *o);

/* --- finish.c ----------------------------------------------------------------------------------
 */

/* With the lock held, before an order is added: memory and the thread that its pieces need, once. */
int finish_prepare(struct pager *p, const struct order *o, struct err *e);
/* No read is out and no order is taken any more: ends the thread. Without the lock. */
void finish_stop(struct pager *p);
