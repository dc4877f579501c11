/* The team. OpenMP starts and ends the threads, nothing else of it is used: its barriers spin for
 * milliseconds, on cores that another process needs. Two words do the rest: `gen` counts what was
 * handed out, `left` who is still at it. */
#define _GNU_SOURCE
#include "shm/team.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "shm/bell.h"

/* Before the first yield: operations of one program follow each other within a microsecond, and a
 * yield gives the core to another process's thread and back. Two teams of two on the same two
 * cores, both hand-overs: 5.6 us with 20 pauses, 10 without any, 10 with 100, 20 with 300. */
#define SPIN_PAUSES 20u

/* A word that threads wait on. Waiters count themselves before they sleep, so that who changes the
 * word makes a system call only if somebody sleeps. */
struct word {
    _Alignas(64) _Atomic uint32_t value;
    _Atomic uint32_t sleepers;
};

struct team {
    struct word gen;  /* leader: counts team_do; the last one is the end */
    struct word left; /* threads that are not done with it; 0: all are */
    struct word met;  /* counts meetings; the last to arrive adds 1 */
    _Alignas(64) _Atomic uint32_t arrived;
    _Alignas(64) team_fn *fn; /* written before gen, NULL: end */
    void *arg;
    int n, shared;
    _Atomic int unpinned;
    const int *cpus;
    int (*leader)(void *, struct team *);
    void *leader_arg;
    int result;
};

static long futex(_Atomic uint32_t *word, int op, uint32_t value)
{
    return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

static void word_wake(struct word *w)
{
    atomic_thread_fence(memory_order_seq_cst); /* partner: word_sleep's */
    if (atomic_load_explicit(&w->sleepers, memory_order_relaxed))
        futex(&w->value, FUTEX_WAKE, INT32_MAX);
}

static void word_sleep(struct word *w, uint32_t while_it_is)
{
    atomic_fetch_add_explicit(&w->sleepers, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&w->value, memory_order_relaxed) == while_it_is)
        futex(&w->value, FUTEX_WAIT, while_it_is);
    atomic_fetch_sub_explicit(&w->sleepers, 1, memory_order_relaxed);
}

/* Waits until the word is no longer `was`; returns what it is. */
static uint32_t word_wait(struct word *w, uint32_t was, int shared)
{
    uint32_t round = 0, now;

    for (uint32_t i = 0; i < SPIN_PAUSES; i++) {
        if ((now = atomic_load_explicit(&w->value, memory_order_acquire)) != was)
            return now;
        cpu_pause();
    }
    while ((now = atomic_load_explicit(&w->value, memory_order_acquire)) == was)
        if (!wait_round(&round, shared))
            word_sleep(w, was);
    return now;
}

/* The arithmetic's floating point state: round to nearest, no flush to zero, no traps. */
static void float_state(void)
{
#if defined(__x86_64__)
    _mm_setcsr(0x1F80);
#endif
}

static void pin(struct team *t, int i)
{
    cpu_set_t one;

    if (!t->cpus)
        return;
    CPU_ZERO(&one);
    if (t->cpus[i] >= 0 && t->cpus[i] < CPU_SETSIZE)
        CPU_SET(t->cpus[i], &one);
    if (sched_setaffinity(0, sizeof one, &one)) /* a container may have taken the core away */
        atomic_fetch_add_explicit(&t->unpinned, 1, memory_order_relaxed);
}

static void follow(struct team *t, int i)
{
    for (uint32_t gen = 0;;) {
        gen = word_wait(&t->gen, gen, t->shared);
        if (!t->fn)
            return;
        t->fn(t->arg, i, t->n);
        if (atomic_fetch_sub_explicit(&t->left.value, 1, memory_order_acq_rel) == 1)
            word_wake(&t->left);
    }
}

static void hand_out(struct team *t, team_fn *fn, void *arg)
{
    t->fn = fn;
    t->arg = arg;
    atomic_store_explicit(&t->left.value, (uint32_t)t->n - 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&t->gen.value, 1, memory_order_release);
    word_wake(&t->gen);
}

void team_do(struct team *t, team_fn *fn, void *arg)
{
    uint32_t left;

    if (t->n == 1) {
        fn(arg, 0, 1);
        return;
    }
    hand_out(t, fn, arg);
    fn(arg, 0, t->n);
    while ((left = atomic_load_explicit(&t->left.value, memory_order_acquire)))
        word_wait(&t->left, left, t->shared);
}

void team_meet(struct team *t)
{
    uint32_t met;

    if (t->n == 1)
        return;
    /* read before we arrive: it cannot change until we have */
    met = atomic_load_explicit(&t->met.value, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&t->arrived, 1, memory_order_acq_rel) + 1 < (uint32_t)t->n) {
        word_wait(&t->met, met, t->shared);
        return;
    }
    atomic_store_explicit(&t->arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&t->met.value, met + 1, memory_order_release);
    word_wake(&t->met);
}

/* One thread's life in the team. */
static void member(struct team *t, int i)
{
    pin(t, i);
    float_state();
    if (i) {
        follow(t, i);
        return;
    }
    t->result = t->leader(t->leader_arg, t);
    if (t->n > 1)
        hand_out(t, NULL, NULL);
}

#if defined(__SANITIZE_THREAD__)
/* The sanitizer knows nothing of libgomp's own synchronisation: the same team over pthreads. */
struct start {
    struct team *t;
    int i;
};
static void *member_thread(void *arg)
{
    struct start *s = arg;

    member(s->t, s->i);
    return NULL;
}
static void open_team(struct team *t)
{
    pthread_t *id = calloc((size_t)t->n, sizeof *id);
    struct start *s = calloc((size_t)t->n, sizeof *s);
    int made = 1;

    for (; id && s && made < t->n; made++) {
        s[made] = (struct start){t, made};
        if (pthread_create(&id[made], NULL, member_thread, &s[made]))
            abort();
    }
    member(t, 0);
    for (int i = 1; i < made; i++)
        pthread_join(id[i], NULL);
    free(id);
    free(s);
}
#else
int omp_get_thread_num(void);
int omp_get_num_threads(void);
void omp_set_dynamic(int);
static void open_team(struct team *t)
{
    omp_set_dynamic(0);
#pragma omp parallel num_threads(t->n)
    {
        /* a thread limit of the environment may have made the team smaller: all see the same n */
#pragma omp single
        t->n = omp_get_num_threads();
        member(t, omp_get_thread_num());
    }
}
#endif

int team_run(int n, const int *cpus, int shared, int (*leader)(void *arg, struct team *t),
             void *arg)
{
    struct team t = {.n = n, .shared = shared, .cpus = cpus, .leader = leader, .leader_arg = arg};
    cpu_set_t before;
    int had = !sched_getaffinity(0, sizeof before, &before);

    open_team(&t);
    if (had)
        sched_setaffinity(0, sizeof before, &before);
    return t.result;
}

int team_size(const struct team *t)
{
    return t->n;
}
int team_shared(const struct team *t)
{
    return t->shared;
}
int team_unpinned(const struct team *t)
{
    return atomic_load_explicit(&t->unpinned, memory_order_relaxed);
}
