/* How large the pager's reads are and how many are out, from what its own reads of a loading model
 * give. Values in, values out: times and bytes come from the caller; no device, no clock.
 *
 * While there are always more reads to make than may be out (a model loads, a long prompt streams
 * through), it tries every candidate for a window of bytes, TUNE_ROUNDS times round, and then keeps
 * one. A demanded read among others that nobody waits for ends a trial at once: what it
 * would wait behind is again what it was before. Less to read than that: the default stays. */
#pragma once
#include <stdint.h>

#define TUNE_ROUNDS 3u               /* a candidate counts by the median of its windows */
#define TUNE_BYTES (24ull << 20)     /* a window is at least so long, */
#define TUNE_NS 10000000ull          /* and so long */
#define TUNE_SKIP (16ull << 20)      /* before it: reads that began under the former candidate */
#define TUNE_WITHIN 0.9              /* this part of the best rate is as good: disks vary more than that */
#define TUNE_LOW_BYTES (6ull << 20)  /* bytes out, at most, that nobody waits for, when nothing is tried */
#define TUNE_DEPTH 32u               /* largest depth of a candidate, */
#define TUNE_READ (2u << 20)         /* ... and its largest read */
#define TUNE_N 8u

struct tune_choice {
    uint32_t read_bytes, depth;
    uint32_t low_depth; /* of depth, for prefetch and warm-up; 1 .. depth - 1 */
};
enum tune_how {
    TUNE_DEFAULT,  /* not enough was read so far */
    TUNE_MEASURED,
    TUNE_FIXED,    /* by the environment, or a form of reading that has its own number */
};
struct tune {
    struct tune_choice now; /* in force: a candidate while one is tried, else what stands */
    enum tune_how how;
    int trying;             /* now is a candidate's */
    uint32_t candidate, round;
    uint64_t skipped, bytes, start; /* of this window */
    double rate[TUNE_N][TUNE_ROUNDS]; /* bytes/s */
    double best, standard;  /* TUNE_MEASURED: medians of the choice and of the default */
};

void tune_init(struct tune *t);
/* "KIBxDEPTH", for example 1024x8: this, and nothing is tried. KIB: multiple of 4, 4 to 2048; depth 2 to
 * 32. 0, or -1: not such a text. */
int tune_fix(struct tune *t, const char *text);
/* A read came at now_ns. more: there are others to give that wait for a place; bounce: it was one by way of
 * a bounce buffer, whose size is fixed; urgent: a demanded read waits while others are out.
 * 1: t->now has changed. */
int tune_came(struct tune *t, uint64_t bytes, uint64_t now_ns, int more, int bounce, int urgent);
/* For tests and messages: candidate i of TUNE_N. */
struct tune_choice tune_candidate(uint32_t i);
