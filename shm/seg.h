/* Shared segments: anonymous once made, so that nothing is left behind by any kind of death.
 *
 * Small segments are POSIX shm (O_CREAT|O_EXCL under a random name, unlinked at once), large ones
 * (slabs, arenas, trunk) memfd: containers give /dev/shm 64 MB, and a write past that is a SIGBUS.
 * Before either is made its size is compared with what the cgroup and the machine have left.
 * Every segment begins with a struct seg_head that a mapper checks. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "shm/err.h"
#include "shm/memory.h"

enum seg_role { /* what a segment holds; the number travels on a child's command line */
    SEG_BOARD = 1,
    SEG_CALLS,
    SEG_ACTS,
    SEG_AMENDS,
    SEG_BELLS,
    SEG_TABLES,
    SEG_ORDERS,
    SEG_TRUNK,
    SEG_OUTBOX, /* index = outbox number */
    SEG_SLABS,  /* index = node */
    SEG_STEPS,
    SEG_ANSWERS,
    SEG_PROGRAM, /* coordinator/trunk/exec/wire.h */
    SEG_CARD_ANSWERS, /* index = outbox number of a card's worker: its answers to orders (struct pager_box) */
    SEG_TIMELINE, /* shm/timeline.h; index = the coordinator's number for it */
};

#define SEG_MAGIC 0x45564c434e4f4343ull /* "CCNOCLVE" */
#define SEG_HEAD_BYTES 4096             /* the payload begins on a page: O_DIRECT reads land there */

struct seg_head { /* written by the maker before anybody else maps; read-only afterwards */
    uint64_t magic;
    uint64_t layout; /* hash of all shared structures' sizes, shm_layout_hash() */
    char build[16];  /* build id, not terminated */
    uint32_t role, index;
    uint64_t bytes; /* payload */
};
_Static_assert(sizeof(struct seg_head) == 48, "a shared structure's size is fixed");

struct seg {
    int fd; /* -1: not open */
    enum seg_role role;
    uint32_t index;
    uint64_t bytes; /* payload */
    void *base;     /* payload; NULL: not mapped */
    void *map;      /* the mapping, SEG_HEAD_BYTES before base */
    int writable;   /* how it is mapped here */
    int bound;      /* the maker's: pages are bound to the node that was asked for */
};

/* Makes and maps (read-write) a segment of `bytes` payload. Owns *s until seg_close.
 * node >= 0: pages are bound to that NUMA node where the machine has it and allows it (s->bound says
 * so; else no binding). Fails with -ENOMEM before anything is made if memory_left() is less. */
int seg_create(enum seg_role role, uint32_t index, uint64_t bytes, int node, struct seg *s,
               struct err *e);
/* Maps a segment received as fd; takes the fd over, also on failure. Checks the head. */
int seg_map(int fd, enum seg_role role, uint32_t index, int writable, struct seg *s, struct err *e);
/* A second descriptor of the same segment that can only be mapped read-only: what a process that
 * must not write is given. The caller's to close. Negative: *e says why. */
int seg_reader_fd(const struct seg *s, struct err *e);
/* Allocates every page now, by a thread for each CPU (at most 4), 16 MB at a time, and compares what is to
 * come with memory_left() before each step: of two programs that take memory at the same moment none is
 * killed. Contents stay. Refused: -ENOMEM; what was allocated stays until seg_close. */
int seg_populate(struct seg *s, struct err *e);
void seg_close(struct seg *s);

const char *build_id(void);         /* 16 characters and a NUL */
uint64_t shm_layout_hash(void);     /* of shm/layout.h as this program was compiled */
const char *seg_role_name(enum seg_role role);
