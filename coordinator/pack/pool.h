/* A few threads over numbered pieces of work that do not depend on each other, while the caller's thread
 * looks on. */
#pragma once
#include <stdatomic.h>
#include <stdint.h>

#include "coordinator/pack/file.h"

/* Reads at a time that keep a disk busy, and writes beside them; each has PACK_OUT + PACK_IN bytes. */
enum { PACK_THREADS = 4, PACK_TICK_MS = 100 };

struct pack_work {
    uint64_t n;
    /* One piece. Any thread. Bytes done are added to `done` by the worker. Negative: the work ends, with
     * the line of the first that failed. */
    int (*piece)(void *arg, uint64_t i, struct pack_room *r, _Atomic uint64_t *done, struct err *e);
    /* Every PACK_TICK_MS, and once at the end; the caller's thread. Not 0: begin no more pieces. */
    int (*tick)(void *arg, uint64_t done, int last, struct err *e);
    void *arg;
};
/* 0: all pieces were made. 1: the tick stopped it. Negative: a piece or a tick failed. */
int pack_work(const struct pack_work *w, struct err *e);
