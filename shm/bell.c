/* Sleeping and waking between processes. Knows futexes and clocks, no rings: what there is to look
 * at is the caller's. */
#define _GNU_SOURCE
#include "shm/bell.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* How long a wait goes on in rounds. A hand-over takes 5 to 50 us, a futex wake-up up to 100 us:
 * much less would sleep in the middle of a step, much more would burn a core that nobody wants
 * back. */
#define ROUNDS_US 300u
/* Rounds between two looks at the clock (about 25 ns each). A pause is 10 to 50 ns, a yield 300 ns
 * with nobody else there. */
#define ROUNDS_PAUSE 32u
#define ROUNDS_YIELD 4u
/* On a shared core a yield lasts as long as the other thread works, milliseconds perhaps, and costs
 * us nothing meanwhile: the time alone must not end the wait after one such round. */
#define YIELDS_LEAST 64u

uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* *round: rounds so far, saturated, in the low 8 bits; the first round's time in us above (it wraps
 * after 16 s; a wait that long in one round only waits some more). */
int wait_round(uint32_t *round, int shared)
{
    uint32_t n = *round & 255;

    if (n == 0) {
        *round = (uint32_t)(now_ns() / 1000) << 8 | 1;
    } else {
        uint32_t every = shared ? ROUNDS_YIELD : ROUNDS_PAUSE;
        if (n % every == 0 && (!shared || n >= YIELDS_LEAST) &&
            (((uint32_t)(now_ns() / 1000) - (*round >> 8)) & 0xFFFFFF) > ROUNDS_US) {
            if (shared)
                sched_yield(); /* also for a caller that cannot sleep and comes again at once */
            return 0;
        }
        /* 255 is followed by 256 - every, so that it stays large and meets the clock again */
        *round = (*round & ~255u) | (n == 255 ? 256 - every : n + 1);
    }
    if (shared)
        sched_yield();
    else
        cpu_pause();
    return 1;
}

static long futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *until)
{
    /* not FUTEX_PRIVATE: the word lies in a segment of several processes */
    return syscall(SYS_futex, word, op, value, until, NULL, FUTEX_BITSET_MATCH_ANY);
}

void bell_wake(struct bell *b)
{
    atomic_fetch_add_explicit(&b->word, 1, memory_order_release);
    futex(&b->word, FUTEX_WAKE, 1, NULL);
}

enum bell_end bell_sleep(struct bell *b, _Atomic uint32_t *asleep, int (*look)(void *), void *arg,
                         int ms)
{
    uint64_t end = now_ns() + (uint64_t)(ms > 0 ? ms : BELL_NET_MS) * 1000000u;
    struct timespec until = {.tv_sec = (time_t)(end / 1000000000u),
                             .tv_nsec = (long)(end % 1000000000u)};
    uint32_t d = atomic_load_explicit(&b->word, memory_order_acquire);
    enum bell_end how;
    int found;

    atomic_store_explicit(asleep, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    if (look(arg)) {
        atomic_store_explicit(asleep, 0, memory_order_relaxed);
        return BELL_LOOKED;
    }
    for (;;) { /* FUTEX_WAIT_BITSET takes a point in time, of CLOCK_MONOTONIC */
        long rc = futex(&b->word, FUTEX_WAIT_BITSET, d, &until);
        int timed_out = rc < 0 && errno == ETIMEDOUT;
        if (atomic_load_explicit(&b->word, memory_order_acquire) != d) {
            how = BELL_RUNG;
            break;
        }
        if (timed_out) { /* looked at before the bell is read again: see BELL_NET */
            found = look(arg);
            if (atomic_load_explicit(&b->word, memory_order_acquire) != d)
                how = BELL_RUNG;
            else
                how = found == LOOK_RUNG ? BELL_NET : found ? BELL_LOOKED : BELL_TIMEOUT;
            break;
        }
    }
    atomic_store_explicit(asleep, 0, memory_order_relaxed);
    return how;
}
