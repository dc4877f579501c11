/* The timeline's other end (shm/timeline.h): makes the rings, takes records out with a thread of its own, and
 * writes them in the Chrome trace format: a JSON array of complete events, times in microseconds of
 * CLOCK_MONOTONIC, which chrome://tracing and Perfetto load. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "coordinator/supervise/spawn.h"
#include "shm/err.h"
#include "shm/timeline.h"

struct tracer;
/* Where the text goes: 0, or negative and *e. From one thread at a time. */
typedef int tracer_write(void *to, const void *data, size_t n, struct err *e);

/* Starts the thread. Hands over *out; *own: the coordinator's own ring (lane TIMELINE_LEADER: its main
 * thread). write NULL: nothing is traced, *out is NULL, own->ring too; every call below takes that. */
int tracer_open(tracer_write *write, void *to, struct tracer **out, struct timeline *own, struct err *e);
/* Adds to the segments of a process that is about to start the ring `key`, made at its first use: a
 * successor of a dead process goes on in its ring. s has room for one more. */
int tracer_give(struct tracer *t, uint32_t key, const char *name, struct worker_seg *s, size_t *n, struct err *e);
/* All processes that write have ended: takes out the rest, ends the file. *dropped: records that found a
 * ring full. The first error of writing. */
int tracer_close(struct tracer *t, uint64_t *dropped, struct err *e);
