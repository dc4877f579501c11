/* The life of a process that computes experts, from CTL_START to its end. */
#pragma once
#include "cpu-worker/worker.h"

struct process_more { /* what a program has besides */
    void *arg;
    /* moves *text of CTL_START behind what is the program's own, so that start_read takes the rest */
    int (*start)(void *arg, const char **text, struct err *e);
    /* the segments are mapped and checked, nothing is computed yet; may fill in the maps' pool and the passer */
    int (*begin)(void *arg, const struct child *c, struct maps *m, const struct ctl_msg *start, struct passer *p,
                 struct err *e);
    void (*beat)(void *arg); /* about ten times a second, from the thread that hears the coordinator; NULL: nobody */
    void (*quit)(void *arg); /* it shall end: from another thread; NULL: nobody */
    void (*end)(void *arg); /* also after an error, and without a begin */
};
/* more may be NULL. 0: it was told to end; negative: *e. */
int process_run(const struct child *c, const struct process_more *more, struct err *e);
