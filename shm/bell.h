/* Waiting and waking (shm/model/wake.pml). A waiting thread first looks in rounds (pause, or
 * sched_yield where teams share cores), then sleeps on its process's doorbell.
 *
 * Sleeper: d = doorbell; asleep = 1; seq_cst fence; look again (every ring, the watch word);
 * FUTEX_WAIT(doorbell, d); asleep = 0. Ringer: word (release); seq_cst fence; if asleep: doorbell + 1
 * (locked), FUTEX_WAKE. The doorbell is read before the second look, and the ringer changes it.
 * A 100 ms time-out is the net; work found by it alone is counted and should be none. */
#pragma once
#include <stdatomic.h>
#include <stdint.h>

#include "shm/layout.h"
#include "shm/words.h"

#define BELL_NET_MS 100

/* After a release store of the word that the sleeper looks at. asleep: the sleeper's own word. */
static inline void bell_ring_fenced(struct bell *b, const _Atomic uint32_t *asleep);
void bell_wake(struct bell *b); /* doorbell + 1 and FUTEX_WAKE */
static inline void bell_ring(struct bell *b, const _Atomic uint32_t *asleep)
{
    atomic_thread_fence(memory_order_seq_cst);
    bell_ring_fenced(b, asleep);
}
/* for several sleepers after one fence */
static inline void bell_ring_fenced(struct bell *b, const _Atomic uint32_t *asleep)
{
    if (atomic_load_explicit(asleep, memory_order_relaxed))
        bell_wake(b);
}

/* What a sleeper's look at its words says. A find by the time-out net is a lost wake-up only if the
 * ringer has already passed that word (board.calls_rung and its like, read with acquire) and the
 * doorbell is unchanged; else the ringer is merely on its way. */
enum look { LOOK_NOTHING = 0, LOOK_FOUND = 1, LOOK_RUNG = 2 /* found, and its ringer has passed it */ };

enum bell_end {
    BELL_LOOKED,  /* look found something: by the second look, or at the time-out with its ring due */
    BELL_RUNG,    /* the doorbell changed */
    BELL_NET,     /* time-out, look says LOOK_RUNG, doorbell unchanged: a lost wake-up. Count it. */
    BELL_TIMEOUT, /* time-out, nothing there */
};
/* Sleeps until rung, or until `look(arg)` (an enum look; called with asleep = 1, and again at the
 * time-out) finds something, or for ms milliseconds (<= 0: BELL_NET_MS). After any end the caller
 * looks again for itself. One sleeper a bell. */
enum bell_end bell_sleep(struct bell *b, _Atomic uint32_t *asleep, int (*look)(void *), void *arg,
                         int ms);

/* One round of a waiting loop: *round is the caller's, 0 at the beginning of a wait, else wait_round's
 * own business. Returns 0 when the time for rounds is over and the caller should sleep (after which it sets
 * *round to 0). shared: other threads want this core (sched_yield each round, else pause). */
int wait_round(uint32_t *round, int shared);

static inline void cpu_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}
uint64_t now_ns(void); /* CLOCK_MONOTONIC */
