/* Writes a pack of a model into a folder. */
#pragma once
#include "coordinator/model/model.h"
#include "shm/err.h"

struct pack_report {
    uint64_t bytes;   /* of both files */
    uint64_t kept;    /* of these, found from an interrupted run and checked */
    uint32_t n_nodes;
    uint64_t n_blocks;
    int was_there;    /* 1: the folder held this very pack already; nothing was done */
};

struct pack_options {
    const struct model *m; /* not from a pack */
    const char *dir;       /* made if it is not there */
    uint32_t n_nodes;
    /* Now and then, with bytes done of all; `last` at the end, whatever the end is. NULL: none. */
    void (*progress)(void *arg, uint64_t done, uint64_t total, int last);
    int (*stop)(void); /* asked now and then; not 0: ends, so that the same call goes on later. NULL: never */
    void *arg;
};

/* Both files are written under a temporary name (".part") and get their own when all of their bytes are
 * on the disk: dense.gguf, then experts.pack, whose name makes the folder a pack. An interrupted run's
 * files are gone on with: what they say is done is read and compared with its checksums first.
 *
 * 0: done. 1: `stop` ended it, what was written stays for the next time. Negative: one line; -ENOSPC
 * before anything was written if the disk has no room for all of it. */
int pack_write(const struct pack_options *o, struct pack_report *r, struct err *e);
