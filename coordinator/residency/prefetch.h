/* Does reading ahead pay here? Decided from what passes took with it and without it, in windows that take
 * turns at the start and again now and then. Plain values: no clock, no I/O. */
#pragma once
#include <stdint.h>

enum prefetch_mode { PREFETCH_AUTO, PREFETCH_ON, PREFETCH_OFF };
enum {
    PREFETCH_WINDOW = 8,     /* passes of a window; the first is not counted: it has the other's leavings */
    PREFETCH_FIRST = 4,      /* pairs of windows of the first trial */
    PREFETCH_AGAIN = 2,      /* of later ones */
    PREFETCH_SETTLED = 1000, /* passes between trials */
};
/* Parts of a pass's time that it must save to be switched on, and may cost before it is switched off again:
 * one trial's noise should not turn it. Reads for nothing, for each useful one, above which time saved is
 * no reason: the disk and its wear are not ours alone. */
#define PREFETCH_GAIN 0.03
#define PREFETCH_LOSS 0.00
#define PREFETCH_WASTE 2.0

struct prefetch {
    enum prefetch_mode mode;
    int on;             /* for the next pass */
    int settled;        /* what the last trial said */
    uint32_t left;      /* AUTO: passes until the next trial; 0: a trial is on */
    uint32_t pairs;     /* of the trial */
    uint32_t window, at; /* of the trial, and passes of this window */
    uint64_t ns[PREFETCH_WINDOW];
    double sum[2];      /* of the medians of the windows without, with */
    uint64_t used0, wasted0; /* at the trial's start */
    uint32_t trials;
    double gain;        /* of the last trial: part of a pass's time that was saved */
};
void prefetch_start(struct prefetch *p, enum prefetch_mode mode);
/* A pass of decode has ended, which was made with p->on; used, wasted: experts read ahead since the start
 * that were called for, and that were not. p->on is then for the next pass. */
void prefetch_passed(struct prefetch *p, uint64_t ns, uint64_t used, uint64_t wasted);
