/* Measuring row-wise work of a team: contenders take turns, round by round, so that a machine whose
 * speed drifts treats them alike. Nothing here is part of a run. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "shm/err.h"

/* Rows [r0, r1) of its work; called by every thread of the team with its own range. */
typedef void measure_fn(void *arg, size_t r0, size_t r1, int thread);
struct contender {
    const char *name;
    measure_fn *fn;
    void *arg;
    size_t n_rows;
    double bytes;        /* that one whole pass moves or multiplies: for the rate */
    double seconds[32];  /* by round, of one pass */
    double median, best; /* GB/s, filled in by measure_run */
};
/* rounds <= 32; one warm-up round that does not count. cpus: threads of them. */
int measure_run(struct contender *c, size_t n, int rounds, int threads, const int *cpus, struct err *e);
double median_of(double *v, int n); /* sorts v */

/* A segment of `bytes` as slabs are: memfd, 4 KiB pages, touched. NULL and *e. */
void *measure_segment(size_t bytes, struct err *e);
void measure_segment_free(void *p, size_t bytes);
/* Plain reading of a segment: a contender's fn. Rows of 4096 bytes. */
struct read_job {
    const uint8_t *p;
    uint64_t sink[64 * 8]; /* a line a thread */
};
measure_fn measure_read;

/* Rows of a weight type with scales of sane size, repeated through the segment. */
void measure_fill(uint32_t type, void *p, size_t bytes);
