/* Sleeping and waking: between threads (also under the thread sanitizer) and between processes, the
 * net's account of lost wake-ups, and the end of waiting by rounds. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/bell.h"
#include "tests/test.h"

#define TURNS 20000

/* Two sides that take turns: `ball` counts, side k plays when ball % 2 == k. */
struct court {
    struct bell bell[2];
    LINE _Atomic uint32_t asleep[2];
    LINE _Atomic uint64_t ball;
    LINE _Atomic uint64_t rung; /* balls whose player has rung */
    LINE _Atomic uint64_t sleeps[2], net[2];
    int rounds; /* look in rounds before sleep, or sleep at once */
};
struct player {
    struct court *c;
    unsigned side;
};

static int my_turn(void *arg)
{
    struct player *p = arg;
    uint64_t ball = atomic_load_explicit(&p->c->ball, memory_order_acquire);

    if (ball % 2 != p->side && ball < TURNS)
        return LOOK_NOTHING;
    return atomic_load_explicit(&p->c->rung, memory_order_acquire) >= ball ? LOOK_RUNG : LOOK_FOUND;
}

static void *play(void *arg)
{
    struct player *p = arg;
    struct court *c = p->c;
    uint32_t round = 0;
    uint64_t ball;

    for (;;) {
        if (!my_turn(p)) {
            if (c->rounds && wait_round(&round, 1))
                continue;
            c->sleeps[p->side]++;
            c->net[p->side] +=
                bell_sleep(&c->bell[p->side], &c->asleep[p->side], my_turn, p, 0) == BELL_NET;
            round = 0;
            continue;
        }
        round = 0;
        ball = atomic_load_explicit(&c->ball, memory_order_relaxed);
        if (ball >= TURNS)
            return NULL;
        atomic_store_explicit(&c->ball, ball + 1, memory_order_release);
        bell_ring(&c->bell[1 - p->side], &c->asleep[1 - p->side]);
        atomic_store_explicit(&c->rung, ball + 1, memory_order_release);
    }
}

static struct court *new_court(int rounds)
{
    struct court *c =
        mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (c == MAP_FAILED)
        exit(1);
    c->rounds = rounds;
    return c;
}

static void after(struct court *c)
{
    CHECK_EQ(c->ball, TURNS);
    CHECK_EQ(c->net[0] + c->net[1], 0);
    CHECK(c->rounds || c->sleeps[0] + c->sleeps[1] > TURNS / 100, "%llu sleeps",
          (unsigned long long)(c->sleeps[0] + c->sleeps[1]));
    munmap(c, sizeof *c);
}

static void threads(int rounds)
{
    struct court *c = new_court(rounds);
    struct player p[2] = {{c, 0}, {c, 1}};
    pthread_t other;

    CHECK(!pthread_create(&other, NULL, play, &p[1]), "no thread");
    play(&p[0]);
    pthread_join(other, NULL);
    after(c);
}

static void processes(int rounds)
{
    struct court *c = new_court(rounds);
    struct player p[2] = {{c, 0}, {c, 1}};
    pid_t child;
    int status;

    fflush(stdout);
    child = fork();
    if (!child) {
        play(&p[1]);
        _exit(0);
    }
    play(&p[0]);
    CHECK(waitpid(child, &status, 0) == child && status == 0, "status %d", status);
    after(c);
}

static int says(void *arg) /* 0 at the first look, then *arg */
{
    int *what = arg, now = what[0];

    what[0] = what[1];
    return now;
}

static void ends_of_sleep(void)
{
    struct bell b = {0};
    _Atomic uint32_t asleep = 0;
    uint64_t t;

    CHECK_EQ(bell_sleep(&b, &asleep, says, (int[]){LOOK_FOUND, LOOK_FOUND}, 0), BELL_LOOKED);
    CHECK_EQ(asleep, 0);
    t = now_ns();
    CHECK_EQ(bell_sleep(&b, &asleep, says, (int[]){LOOK_NOTHING, LOOK_NOTHING}, 20), BELL_TIMEOUT);
    CHECK(now_ns() - t >= 20000000, "woke up early");
    /* found at the time-out, its ringer has passed it, no ring: a lost wake-up */
    t = now_ns();
    CHECK_EQ(bell_sleep(&b, &asleep, says, (int[]){LOOK_NOTHING, LOOK_RUNG}, 0), BELL_NET);
    CHECK(now_ns() - t >= BELL_NET_MS * 1000000u, "woke up early");
    /* found, its ringer is on its way: not one */
    CHECK_EQ(bell_sleep(&b, &asleep, says, (int[]){LOOK_NOTHING, LOOK_FOUND}, 5), BELL_LOOKED);
    CHECK_EQ(asleep, 0);
}

static int rung_meanwhile(void *arg) /* the ring falls between the look and the futex */
{
    bell_wake(arg);
    return LOOK_NOTHING;
}
static void ring_before_the_wait(void)
{
    struct bell b = {0};
    _Atomic uint32_t asleep = 0;
    uint64_t t = now_ns();

    CHECK_EQ(bell_sleep(&b, &asleep, rung_meanwhile, &b, 5000), BELL_RUNG);
    CHECK(now_ns() - t < 2000000000u, "it slept");
    bell_ring(&b, &asleep); /* nobody sleeps: the doorbell stays */
    CHECK_EQ(b.word, 1);
    asleep = 1;
    bell_ring(&b, &asleep);
    CHECK_EQ(b.word, 2);
}

static void rounds_end(int shared)
{
    uint32_t round = 0;
    uint64_t t = now_ns(), n = 0;

    while (wait_round(&round, shared))
        n++;
    t = now_ns() - t;
    CHECK(t > 100000, "%llu ns", (unsigned long long)t);
    CHECK(t < 5000000000u, "%llu ns", (unsigned long long)t);
    CHECK(n >= 64, "%llu rounds", (unsigned long long)n);
}

int main(void)
{
    ends_of_sleep();
    ring_before_the_wait();
    rounds_end(0);
    rounds_end(1);
    threads(0);
    threads(1);
    processes(0);
    processes(1);
    return test_end();
}
