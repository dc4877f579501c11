/* The two forms of reading: one io_uring (uring.c), or a few threads with pread (threads.c) where
 * the kernel or a container's filter refuses io_uring. Both take reads from follow_next and give
 * each back by follow_result. */
#pragma once
#include "pager/pager.h"

struct io_form {
    const char *name;   /* as in CONCLAVE_IO */
    uint32_t depth;     /* most reads out at a time */
    int tunes;          /* how many of them, and their size, is measured (tune.h) */
    uint32_t low_depth; /* else: of these, for prefetch and warm-up */
    /* Begins: everything in p is there. Starts threads, hands over p->io. */
    int (*open)(struct pager *p, struct err *e);
    /* There may be new reads. Without the lock. */
    void (*kick)(struct pager *p);
    /* p->stopping is set: waits for the reads that are out, ends the threads, frees p->io. Without
     * the lock. */
    void (*close)(struct pager *p);
};

extern const struct io_form io_uring_form;
extern const struct io_form io_threads_form;
