/* Open orders and the reads they are cut into: which read is next, and what a read's result means.
 * Values in, values out: no descriptor, no thread, no clock; the caller holds the lock.
 *
 * An order becomes a job, a job's pieces become reads of at most READ_BYTES. Reads go out by
 * priority (demand, prefetch, warm-up), inside a priority in number order. Prefetch and warm-up
 * together never hold all places, so that a demanded read is never queued behind them here.
 *
 * Right order: jobs_add when the order was checked (pager/check.h); jobs_next until it returns
 * NULL; each read it gave is answered by jobs_result once, again while that says so. An order ends
 * only when none of its reads is out: nothing lands in a slab after its order was answered. */
#pragma once
#include <stdint.h>

#include "shm/err.h"
#include "shm/layout.h"

/* One read in the kernel. Measured with fio on a virtual NVMe disk, direct random reads: from
 * 256 KiB and four reads at a time on, all sizes and depths gave the same 1.1 to 2.2 GB/s. Large
 * enough that the cost of a system call vanishes, small enough that a demanded read waits for
 * little. */
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
    uint64_t dst;   /* in the segment, multiple of READ_ALIGN */
    uint32_t tries_eio, tries_again, tries_short;
    struct job *job;
};

struct jobs {
    uint32_t n_slots, depth, low_depth;
    uint32_t out, low_out;          /* reads out; of these not demanded */
    uint32_t n_open;                /* orders */
    struct job *job;                /* n_slots, by order number */
    struct job *first[3], *last[3]; /* by priority: jobs that have reads to give */
    struct job_read *read;          /* depth */
    uint32_t *spare;                /* ids of reads that are not out: depth - out */
};

/* depth: most reads out at a time; low_depth < depth of them for prefetch and warm-up (depth 1: 1).
 * Owns memory until jobs_free. */
int jobs_init(struct jobs *js, uint32_t n_slots, uint32_t depth, uint32_t low_depth, struct err *e);
void jobs_free(struct jobs *js); /* all zero is allowed */

/* Takes a checked order. -EEXIST: the slot's former order is still open (the coordinator's fault).
 */
int jobs_add(struct jobs *js, const struct order *o);
/* The next read to make, or NULL: nothing to do, or no place. Borrowed until jobs_result ends it.
 */
struct job_read *jobs_next(struct jobs *js);

struct job_result {
    int again;  /* 1: make the read again (it was changed); 2: after a nap. 0: the read is over */
    int report; /* negative errno: the order's first failure, to be told; -ENODATA: the file ends */
    int ended;  /* the order has ended; its slot may be used again */
    int failed; /* ... without its bytes */
    uint64_t number;
    uint64_t at; /* report: the byte of the file that could not be read */
};
/* res: bytes read or a negative errno. */
struct job_result jobs_result(struct jobs *js, struct job_read *r, int64_t res);
/* The order a read belongs to, while the read is out. */
const struct order *jobs_order(const struct job_read *r);
