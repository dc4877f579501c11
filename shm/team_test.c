/* Teams: everybody works, everybody meets, after short waits and after sleep, alone and beside
 * another process's team on the same cores; the floating point state. */
#define _GNU_SOURCE
#include "shm/team.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "shm/bell.h"
#include "tests/test.h"

#define MOST 4
#define TIMES 3000

struct job {
    struct team *t;
    _Atomic int ran[MOST], n_wrong;
    int phase[MOST]; /* written by its thread before a meeting, read by all after it */
    _Atomic unsigned csr[MOST];
    _Atomic int cpu[MOST];
    int want_n;
};

static void work(void *arg, int thread, int n)
{
    struct job *j = arg;

    if (n != j->want_n || thread < 0 || thread >= n) {
        j->n_wrong++;
        return;
    }
    j->ran[thread]++;
#if defined(__x86_64__)
    j->csr[thread] = _mm_getcsr() & ~0x3Fu; /* flags of what happened are not state */
#else
    j->csr[thread] = 0x1F80;
#endif
    j->cpu[thread] = sched_getcpu();
    for (int turn = 1; turn <= 3; turn++) {
        j->phase[thread] += 1;
        team_meet(j->t);
        for (int i = 0; i < n; i++)
            j->n_wrong += j->phase[i] != j->phase[thread];
        team_meet(j->t);
    }
}

static int lead(void *arg, struct team *t)
{
    struct timespec nap = {.tv_nsec = 2000000}; /* long enough for the team to sleep */
    struct job *j = arg;

    j->t = t;
    j->want_n = team_size(t);
    for (int i = 0; i < TIMES; i++) {
        team_do(t, work, j);
        if (i % 500 == 0)
            nanosleep(&nap, NULL);
    }
    return 40 + team_size(t);
}

static void team_of(int n, const int *cpus, int shared)
{
    struct job j = {0};
    cpu_set_t before, after;

    sched_getaffinity(0, sizeof before, &before);
    CHECK_EQ(team_run(n, cpus, shared, lead, &j), 40 + n);
    CHECK_EQ(j.n_wrong, 0);
    for (int i = 0; i < n; i++) {
        CHECK_EQ(j.ran[i], TIMES);
        CHECK_EQ(j.csr[i], 0x1F80);
        CHECK(!cpus || j.cpu[i] == cpus[i], "thread %d ran on core %d", i, j.cpu[i]);
    }
    sched_getaffinity(0, sizeof after, &after);
    CHECK(CPU_EQUAL(&before, &after), "the caller stays pinned");
}

static int lead_unpinned(void *arg, struct team *t)
{
    struct job *j = arg;

    j->t = t;
    j->want_n = team_size(t);
    team_do(t, work, j);
    return team_unpinned(t);
}
static void no_such_core(void)
{
    struct job j = {0};

    CHECK_EQ(team_run(2, (int[]){100000, -3}, 0, lead_unpinned, &j), 2);
    CHECK_EQ(j.ran[1], 1);
}

#if defined(__x86_64__)
static void bad_float_state(void) /* the caller's thread had flush to zero on */
{
    struct job j = {0};
    unsigned was = _mm_getcsr();

    _mm_setcsr(was | 0x8040);
    CHECK_EQ(team_run(2, NULL, 0, lead_unpinned, &j), 0);
    CHECK_EQ(j.csr[0], 0x1F80);
    CHECK_EQ(j.csr[1], 0x1F80);
    _mm_setcsr(was);
}
#endif

/* ---- two processes with a team each take turns, as trunk and workers do ---- */

#define TURNS 1000 /* beside busy processes a turn can take milliseconds */
struct ball {
    LINE _Atomic uint64_t at;
};
struct side {
    struct ball *b;
    unsigned me;
};

static void nothing(void *arg, int thread, int n)
{
    (void)arg;
    (void)thread;
    (void)n;
}

static int take_turns(void *arg, struct team *t)
{
    struct side *s = arg;
    uint32_t round = 0;

    for (uint64_t at; (at = atomic_load_explicit(&s->b->at, memory_order_acquire)) < TURNS;) {
        if (at % 2 != s->me) {
            if (!wait_round(&round, 1))
                round = 0; /* no bell here: on and on */
            continue;
        }
        round = 0;
        team_do(t, nothing, NULL);
        atomic_store_explicit(&s->b->at, at + 1, memory_order_release);
    }
    return 0;
}

static void beside_another(int n)
{
    struct ball *b =
        mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int cpus[MOST], status, have = 0;
    cpu_set_t may;
    uint64_t start;
    pid_t child;

    sched_getaffinity(0, sizeof may, &may);
    for (int i = 0; i < CPU_SETSIZE && have < n; i++)
        if (CPU_ISSET(i, &may))
            cpus[have++] = i;
    if (have < n) {
        SKIP("%d cores needed", n);
        return;
    }
    fflush(stdout);
    child = fork();
    if (!child) {
        struct side s = {b, 1};
        _exit(team_run(n, cpus, 1, take_turns, &s));
    }
    start = now_ns();
    CHECK_EQ(team_run(n, cpus, 1, take_turns, &(struct side){b, 0}), 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0, "status %d", status);
    printf("two teams of %d on the same cores: %.1f us for both hand-overs\n", n,
           (double)(now_ns() - start) / 1e3 / (TURNS / 2.0));
    munmap(b, sizeof *b);
}

int main(void)
{
    int first = sched_getcpu();

    /* first: once a process has had threads of OpenMP, its forked children cannot have any */
    beside_another(1);
    beside_another(2);
    for (int n = 1; n <= MOST; n++)
        for (int shared = 0; shared < 2; shared++)
            if (shared || n <= 2) /* spinning without yield is for teams that have their cores */
                team_of(n, NULL, shared);
    team_of(1, &first, 0);
    no_such_core();
#if defined(__x86_64__)
    bad_float_state();
#endif
    return test_end();
}
