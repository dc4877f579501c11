/* The leader's life: follow both rings, work, wait. */
#pragma once
#include "cpu-worker/share.h"
#include "cpu-worker/work.h"

/* Who makes passes where it is not the team: a card. run: the pass is in memory on return (share.h, `whole`);
 * negative: the worker ends with *e. */
struct passer {
    int (*run)(void *arg, const struct pass *p, struct err *e);
    void *arg;
};

struct worker {
    const struct maps *m;
    struct passer passer; /* run NULL: the team */
    struct shares shares;
    struct work work;
    int ctl;           /* for CTL_READY and log lines; < 0: none (tests) */
    _Atomic int *quit; /* set by another thread, which then rings our bell: return */
    struct err *e;
    uint32_t round; /* of the present wait */
};

/* What CTL_START says: "threads=N cpus=a,b,c shared=0", cpus=- for threads that are not pinned.
 * Owns cpus (NULL: not pinned). */
struct start {
    int threads, shared;
    int *cpus;
};
#define START_MAX_THREADS 1024
int start_read(const char *text, struct start *st, struct err *e);

/* Allocates. calls, amends: the rings' heads when this outbox number was handed out, both 0 at a
 * run's beginning. passer may be NULL. Free with worker_drop, also after an error. */
int worker_init(struct worker *w, const struct maps *m, const struct passer *passer, int threads, uint64_t calls,
                uint64_t amends, struct err *e);
void worker_drop(struct worker *w);
/* A team's leader: arg is the worker. 0: told to quit; negative: *w->e says what is wrong. */
int worker_lead(void *arg, struct team *t);
