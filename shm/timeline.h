/* The timeline of a run (--trace): each process writes what it did into a ring of its own, the coordinator
 * takes it out and writes the file. A process that was given no ring pays one branch an event.
 *
 * A ring has lanes, each written by one thread of the process (or by several under one lock), so that
 * records need no atomics but the lane's two ends. A lane that is full drops what comes and counts it.
 *
 *   field            written by        order
 *   lane.next        the lane's owner  release, after the record; the coordinator acquires
 *   lane.dropped     the same          relaxed
 *   lane.record[i]   the same          plain, between `taken` (acquired) and `next`
 *   lane.taken       coordinator       release, after it has copied; the owner acquires
 *
 * The owner dies: what is before `next` is whole. Its successor goes on in the same ring once it is reaped.
 * Nothing here is read by anybody who computes. */
#pragma once
#include <stdatomic.h>
#include <stdint.h>

#include "shm/bell.h"
#include "shm/layout.h"

#define TIMELINE_RECORDS 8192u /* of a lane, a power of two */

enum timeline_lane_of { /* who writes it, by process */
    TIMELINE_LEADER,   /* coordinator: the main thread; workers: the team's leader; pager: under its lock */
    TIMELINE_SIDE,     /* a card's uploads */
    TIMELINE_TRUNK,    /* the trunk's thread of a card's worker */
    TIMELINE_LANES,
};
enum timeline_kind { /* and what a, b, c are; coordinator/supervise/tracer.c has their names */
    TIMELINE_STARTED,  /* no length */
    TIMELINE_LOAD,     /* bytes */
    TIMELINE_STEP,     /* number, tokens, rows of logits: a pass of the trunk as the coordinator has it */
    TIMELINE_HOSTED,   /* number, tokens: the same where the trunk is executed, in a card's worker */
    TIMELINE_LAUNCH,   /* number, tokens: of that on a real card, until its kernels are on their way, with a prompt's waits
                        * for calls */
    TIMELINE_ANSWER,   /* number, tokens: ... from there to the answer's stamp */
    TIMELINE_PUBLISH,  /* call, layer, items */
    TIMELINE_WAIT,     /* call, layer */
    TIMELINE_SUM,      /* call, layer */
    TIMELINE_OWN,      /* -, layer, items: experts on the trunk's card itself, which no call names */
    TIMELINE_PASS,     /* call, layer, items that it completed */
    TIMELINE_UPLOAD,   /* bytes, layer, expert: from the order to the copy's end */
    TIMELINE_DOWN,     /* the same from a card to memory */
    TIMELINE_READ,     /* bytes, layer, expert */
    TIMELINE_KINDS,
};

struct timeline_record {
    uint64_t start, end; /* CLOCK_MONOTONIC, ns */
    uint64_t a;
    uint32_t b, c;
    uint16_t kind, row;  /* row: of things that overlap in time, which one */
    uint32_t pid;
};
_Static_assert(sizeof(struct timeline_record) == 40, "a shared structure's size is fixed");
struct timeline_lane {
    LINE _Atomic uint64_t next;
    _Atomic uint64_t dropped;
    LINE _Atomic uint64_t taken;
    LINE struct timeline_record record[TIMELINE_RECORDS];
};
struct timeline_ring {
    struct timeline_lane lane[TIMELINE_LANES];
};

/* A process's own; ring NULL: nothing is traced. */
struct timeline {
    struct timeline_ring *ring;
    uint32_t pid;
};

void timeline_put(const struct timeline *t, enum timeline_lane_of lane, const struct timeline_record *r);

/* When something begins; 0 where nothing is traced. */
static inline uint64_t timeline_begin(const struct timeline *t)
{
    return __builtin_expect(t->ring != NULL, 0) ? now_ns() : 0;
}
/* It has ended, just now. row: which of several that overlap. */
static inline void timeline_row(const struct timeline *t, enum timeline_lane_of lane, enum timeline_kind kind, uint16_t row,
                             uint64_t begin, uint64_t a, uint32_t b, uint32_t c)
{
    if (__builtin_expect(t->ring != NULL, 0))
        timeline_put(t, lane, &(struct timeline_record){begin, now_ns(), a, b, c, (uint16_t)kind, row, 0});
}
static inline void timeline_end(const struct timeline *t, enum timeline_lane_of lane, enum timeline_kind kind, uint64_t begin,
                             uint64_t a, uint32_t b, uint32_t c)
{
    timeline_row(t, lane, kind, 0, begin, a, b, c);
}
