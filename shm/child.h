/* What every worker process does first, in the same order: die with the parent, say hello with its
 * build id, map what it was given, check the heads. A child's command line is
 *
 *   conclave-cpu PARENT_PID OUTBOX CTL_FD ROLE:INDEX:FD:MODE ...     MODE r or w
 *
 * written by coordinator/supervise/spawn.c. Nobody types it. */
#pragma once
#include "shm/ctl.h"
#include "shm/layout.h"
#include "shm/seg.h"
#include "shm/timeline.h"

#define CHILD_SEGS 80
struct child {
    int ctl;
    uint32_t outbox; /* own process slot */
    size_t n_segs;
    struct seg seg[CHILD_SEGS];
    struct timeline timeline; /* the process's part of the timeline; off unless the coordinator passed a ring */
};

/* 0, or a negative code with *e set (also told to the parent as CTL_ERROR). usage: e.g. when a
 * person starts the program by hand. Handles --version and --help (exits). */
int child_begin(int argc, char **argv, const char *name, const char *about, struct child *c,
                struct err *e);
/* The mapped payload, or NULL. */
void *child_seg(const struct child *c, enum seg_role role, uint32_t index);
