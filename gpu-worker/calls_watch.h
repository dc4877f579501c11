/* Calls that kernels have published, watched by their host: where it looks, nothing on the card has to (a launched pass,
 * gpu-worker/calls_cuda.h). Rules of the words: shm/model/README.md. */
#pragma once
#include <stdint.h>

#include "shm/layout.h"

#ifdef __cplusplus
extern "C" {
#endif
struct calls_told { /* by kernels, to mapped memory; the call first, the ticket with release */
    uint64_t ticket; /* of the last publishing */
    uint64_t call;   /* that it published; 0: none */
};
struct calls_watch { /* addresses are the host's */
    const struct geometry *g;
    struct calls *calls;
    struct amends *amends;
    struct outbox *const *box; /* by number; NULL: none */
    const struct calls_told *told;
    const uint64_t *stop; /* not 0: nobody waits any more */
    uint64_t limit_ns;
    int (*failed)(void *arg); /* asked now and then while nothing is told: what ends the wait, or 0 */
    void *arg;
    uint64_t waited_ns; /* for calls, since they were told */
};
enum calls_end { CALLS_MADE, CALLS_GIVEN_UP, CALLS_OVER_LIMIT };
/* Until the publishing with this ticket is told, and every share of its call is made by who has it now: CALLS_MADE.
 * Given up: `stop`, or over the limit. What failed() said, negative. */
int calls_watch(struct calls_watch *w, uint64_t ticket);
#ifdef __cplusplus
}
#endif
