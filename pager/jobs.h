/* Open orders and the reads they are cut into: which read is next, and what a read's result means.
 * Values in, values out: no descriptor, no thread, no clock; the caller holds the lock.
 *
 * An order becomes a job, a job's pieces become reads of at most read_bytes. Reads go out by
 * priority (demand, prefetch, warm-up), inside a priority in the order in which orders came to have
 * it. Prefetch and warm-up together never hold all places, so that a demanded read is never queued
 * behind them here.
 *
 * Right order: jobs_add when the order was checked (pager/check.h); jobs_next until it returns
 * NULL; each read it gave is answered by jobs_result once, again while that says so. Some reads leave
 * work behind, to be done without the lock: a read by way of a bounce buffer (PIECE_COPY) is copied,
 * a piece whose reads are all over (PIECE_CHECK) is hashed: jobs_work_next, then jobs_work_over. An
 * order ends only when none of its reads is out and none of its work is left: nothing lands in a slab
 * after its order was answered. */
#pragma once
#include <stdint.h>

#include "shm/err.h"
#include "shm/layout.h"

/* One read in the kernel: a bounced one always, others until jobs_size says something else (tune.h).
 * Large enough that the cost of a system call vanishes, small enough that a demanded read waits
 * for little. */
#define READ_BYTES (512u << 10)
#define READ_ALIGN 4096u /* every offset, size and address of a direct read */

/* A read that fails for a passing reason is tried again, this often in all for one read: */
#define RETRY_EIO 3u     /* the drive has tried many times itself */
#define RETRY_SHORT 3u   /* less than a block arrived */
#define RETRY_AGAIN 100u /* EAGAIN, EINTR: the caller naps RETRY_NAP_US before each */
#define RETRY_NAP_US 1000u

struct job;
struct job_read {
    uint32_t id; /* 0 .. depth-1, unique among the reads that are out */
    uint32_t shard, seg;
    uint64_t off;   /* in the file, multiple of READ_ALIGN */
    uint64_t bytes; /* to ask for, multiple of READ_ALIGN */
    uint64_t need;  /* of these, bytes that must arrive: 1 .. bytes */
    uint64_t dst;   /* in the segment, or in the bounce area; multiple of READ_ALIGN */
    int bounce;     /* dst is in the bounce area: READ_BYTES for each id */
    /* bounce: n_copy bytes from offset copy_from of the bounce area to copy_to of the segment */
    uint64_t copy_from, copy_to, n_copy;
    uint32_t piece; /* of its order */
    uint32_t tries_eio, tries_again, tries_short;
    uint64_t began; /* the caller's: when it went out */
    struct job *job;
    struct job_read *next; /* among those that wait to be copied */
};

struct jobs {
    uint32_t n_slots, depth;
    uint32_t limit, low_limit;      /* reads out at most; of these not demanded (jobs_size) */
    uint32_t read_bytes;            /* a read's, where it is not a bounced one */
    uint32_t out, low_out;          /* reads out or not yet copied; of these not demanded */
    uint32_t n_open;                /* orders */
    struct job *job;                /* n_slots, by order number */
    struct job *first[3], *last[3]; /* by priority: jobs that have reads to give */
    struct job_read *read;          /* depth */
    uint32_t *spare;                /* ids of reads that are not out: depth - out */
    struct job_read *copy_first, *copy_last; /* reads that wait to be copied */
    struct job *check_first, *check_last;    /* jobs with pieces that wait to be hashed */
};

/* depth: most reads out at a time; low_depth < depth of them for prefetch and warm-up (depth 1: 1).
 * Owns memory until jobs_free. */
int jobs_init(struct jobs *js, uint32_t n_slots, uint32_t depth, uint32_t low_depth, struct err *e);
/* From the next read on: reads of read_bytes (multiple of READ_ALIGN; bounced ones stay READ_BYTES), `limit`
 * of them out (at most the depth of jobs_init), low_limit <= limit of these for prefetch and warm-up. */
void jobs_size(struct jobs *js, uint32_t read_bytes, uint32_t limit, uint32_t low_limit);
/* A job has reads to give; with PRIO_DEMAND; and reads are out that nobody waits for. */
int jobs_more(const struct jobs *js);
int jobs_urgent(const struct jobs *js);
void jobs_free(struct jobs *js); /* all zero is allowed */

/* Takes a checked ORDER_READ. -EEXIST: the slot's former order is still open (the coordinator's
 * fault). */
int jobs_add(struct jobs *js, const struct order *o);
int jobs_slot_open(const struct jobs *js, uint64_t number); /* would jobs_add say -EEXIST? */
/* The next read to make, or NULL: nothing to do, or no place. Borrowed until jobs_result, or
 * jobs_work_over, ends it. */
struct job_read *jobs_next(struct jobs *js);

struct job_result {
    int again;  /* 1: make the read again (it was changed); 2: after a nap. 0: the read is over */
    int work;   /* there is something for jobs_work_next */
    int report; /* negative errno: the order's first failure, to be told. -ENODATA: the file ends;
                 * -EBADMSG: a checksum */
    int ended;  /* the order has ended; its slot may be used again */
    enum order_why why; /* ended: how */
    uint64_t number;
    uint64_t at;    /* report: the byte of the file that could not be read, or where the piece begins */
    uint32_t piece; /* report, ended with CHECKSUM or IO: the piece that failed first */
    uint32_t shard; /* report */
};
/* res: bytes read or a negative errno. */
struct job_result jobs_result(struct jobs *js, struct job_read *r, int64_t res);

struct job_work {
    struct job_read *read; /* to be copied; NULL: a piece to be hashed */
    struct job *job;
    uint32_t piece;
};
/* The next work: 1 and *w, or 0. */
int jobs_work_next(struct jobs *js, struct job_work *w);
/* It is done. ok: 0 if a checksum was wrong. */
struct job_result jobs_work_over(struct jobs *js, const struct job_work *w, int ok);

/* Drops what has not been read of order `number`; reads that are out are waited for (ended is not set
 * then, but by the last of them). An order whose reads were all given goes on to its end. Unknown,
 * ended, failed orders: nothing. */
struct job_result jobs_cancel(struct jobs *js, uint64_t number);
/* 1: order `number` has a more urgent priority now; 0: nothing changed. */
int jobs_raise(struct jobs *js, uint64_t number, uint32_t prio);

/* The order of a read that is out, or of a job. */
const struct order *jobs_order(const struct job_read *r);
const struct order *jobs_order_of(const struct job *j);
