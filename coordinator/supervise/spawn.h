/* Starting the worker processes: found beside our own executable, of our own build, with exactly the
 * descriptors they need. */
#pragma once
#include <sys/types.h>

#include "shm/ctl.h"
#include "shm/layout.h"
#include "shm/seg.h"

struct worker {
    pid_t pid; /* 0: not running */
    int pidfd; /* readable when it has ended; -1 */
    int ctl;   /* our end of the control socket; -1 */
    uint32_t outbox;
    char name[48]; /* for lines: "cpu worker 0", "pager" */
};
struct worker_seg {
    const struct seg *seg;
    int writable;
};

/* Starts PROGRAM (a file name beside ours) and waits for its hello: missing, not executable, or of
 * another build is one line that names the file. The child dies with the thread that started it
 * (PR_SET_PDEATHSIG): the main one, or the watching one, which ends its children before it ends. */
int spawn_worker(const char *program, const char *name, uint32_t outbox, const struct worker_seg *segs,
                 size_t n_segs, struct worker *w, struct err *e);
/* Waits for CTL_READY; the child's own error line is passed on. */
int spawn_wait_ready(struct worker *w, struct err *e);
/* Kills and reaps. */
void spawn_kill(struct worker *w);
/* Asks all to finish, waits a little, kills what is left, reaps. */
void spawn_end(struct worker *w, size_t n);
/* The path of a program that lies beside ours. */
int spawn_beside_us(const char *program, char *path, size_t n, struct err *e);
/* "ended with status 1", "was killed by signal 9 (Killed)" */
void spawn_how_it_ended(int status, char *text, size_t n);
