/* Watches the workers: their log lines, their error texts, their death. One thread that sleeps in poll(). A
 * card's worker that dies, hangs or reports an error is replaced (lives.h); any other's death ends the program:
 * one line, status 1. */
#pragma once
#include "coordinator/supervise/lives.h"
#include "coordinator/supervise/spawn.h"

struct watch_kept { /* workers that are replaced; borrowed until watch_stop */
    size_t first, n;      /* of the watched workers: w[first .. first + n) */
    uint32_t card[MAX_CARDS]; /* ... are those of these cards */
    struct life *life;    /* by card */
    const _Atomic uint64_t *beat[MAX_CARDS]; /* by card: counts while the process lives, about ten times a second */
    /* Starts worker number life->number of the card, up to its hello, and tells it to start; it says that it is
     * ready later. */
    int (*start)(void *arg, uint32_t card, struct worker *w, struct err *e);
    void (*news)(void *arg); /* it is the steward's turn in some life */
    void *arg;
};
struct watch;
/* Borrows the workers until watch_stop. kept may be NULL. */
int watch_start(struct worker *w, size_t n, const struct watch_kept *kept, int verbose, struct watch **out,
                struct err *e);
void watch_wake(struct watch *wt); /* it is the watch's turn in some life. Any thread */
/* Ends also the workers that it has started. */
void watch_stop(struct watch *wt); /* NULL is allowed */
/* Ends the program from any thread: kills and reaps the workers, one line, status 1. */
void watch_fatal(struct watch *wt, const char *fmt, ...) __attribute__((format(printf, 2, 3), noreturn));
