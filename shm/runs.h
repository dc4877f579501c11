/* An amount of work cut over a team: every thread has an even run of it, in pieces, and takes these in order;
 * who is done takes pieces of the others'. So a thread whose core was taken away for a while, or whose memory
 * answers later than its neighbours', is not waited for with a run of its own left. A little work is one piece
 * a thread, always the same one: what it reads may still lie in that core's cache. */
#pragma once
#include <stdint.h>

#include "shm/err.h"
#include "shm/layout.h"

#define RUN_PIECES 32u           /* of a thread's run, at most */
#define PIECE_LEAST (128u << 10) /* smaller ones cost more than they even out */

struct run_left {
    LINE _Atomic uint32_t next; /* its first piece that nobody has; beyond the last: none */
};
struct runs {
    struct run_left *run; /* by thread */
    int most;        /* threads that there is room for */
    int n;
    uint32_t pieces; /* of each */
    uint64_t all;
};

/* Free with runs_drop, also after an error. */
int runs_init(struct runs *r, int n_threads, struct err *e);
void runs_drop(struct runs *r);
/* Leader, before the team begins: n <= n_threads share [0, all). */
void runs_cut(struct runs *r, int n, uint64_t all);
/* A piece [*from, *to), perhaps empty, for that thread. *of is the caller's, `thread` at the beginning. 0: none
 * is left. Each is given once, to one thread; which one changes no result. */
int runs_take(struct runs *r, int *of, int thread, uint64_t *from, uint64_t *to);
