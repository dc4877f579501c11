/* The rings under load: one producer, one steward, eight consumers, each a process of its own, on
 * however few cores there are. Every row is checked. One consumer after the other owns nothing for
 * more than ten rounds of the call ring, some are stopped for 50 calls and more (and lose their
 * items to others, and go on as late owners), some are killed and replaced. What must happen is
 * counted, and so is what must not: a wrong row, and work that only the time-out net found.
 *
 * CONCLAVE_STRESS_CALLS: how many calls; 1000000 if not set, a tenth of that under a sanitizer. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/ring_rig.h"
#include "tests/test.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CALLS 100000
#else
#define CALLS 1000000
#endif
#define STOPS 5
#define DEATHS 4
#define STOPPED_CALLS 50
#define DEADLINE_NS 4000000u

/* On two cores, however many there are: half of the processes on each of the first two that we may
 * use. */
static void pin(uint32_t k)
{
    cpu_set_t may, one;
    int n = 0;

    if (sched_getaffinity(0, sizeof may, &may))
        return;
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && n <= (int)(k % 2); i++)
        if (CPU_ISSET(i, &may)) {
            CPU_ZERO(&one);
            CPU_SET(i, &one);
            n++;
        }
    sched_setaffinity(0, sizeof one, &one);
}

static pid_t start(struct rig *r, int role, uint32_t me, uint64_t call, uint64_t amend)
{
    pid_t parent = getpid(), p;

    fflush(stdout);
    p = fork();
    if (p)
        return p;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    pin(role == 0 ? 0 : role == 1 ? 1 : me);
    if (role == 0)
        producer_role(r);
    else if (role == 1)
        steward_role(r);
    else
        consumer_role(r, me, call, amend);
    _exit(0);
}

static void sleep_us(long us)
{
    struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};

    nanosleep(&t, NULL);
}

static uint64_t calls_now(struct rig *r)
{
    return peek(&r->calls->head);
}

/* Until call n is out. 0: the run has ended before. */
static int wait_call(struct rig *r, uint64_t n)
{
    while (calls_now(r) < n && !peek32(&r->world->ended))
        sleep_us(300);
    return !peek32(&r->world->ended);
}

/* Stopped for at least STOPPED_CALLS calls. Returns how many it was. */
static uint64_t stop_for_a_while(struct rig *r, pid_t p)
{
    uint64_t from = calls_now(r), n;

    kill(p, SIGSTOP);
    wait_call(r, from + STOPPED_CALLS + 1);
    n = calls_now(r) - from;
    kill(p, SIGCONT);
    return n;
}

/* Kills consumer i, whose outbox is `old`, and starts its replacement under the number `fresh`. */
static pid_t replace(struct rig *r, pid_t p, uint32_t i, uint32_t old, uint32_t fresh)
{
    uint64_t call, amend;

    kill(p, SIGKILL);
    atomic_store_explicit(&r->world->state[old], WORKER_DEAD, memory_order_release);
    waitpid(p, NULL, 0);
    atomic_store_explicit(&r->world->state[old], WORKER_REAPED, memory_order_release);
    call = calls_now(r); /* both heads, before anybody can name the number */
    amend = peek(&r->amends->head);
    p = start(r, 2, fresh, call, amend);
    atomic_store_explicit(&r->world->state[fresh], WORKER_LIVE, memory_order_release);
    while (peek32(&r->world->known[fresh]) != WORKER_LIVE && !peek32(&r->world->ended))
        sleep_us(100);
    atomic_store_explicit(&r->world->live[i], fresh, memory_order_release);
    return p;
}

static int ended_well(pid_t p)
{
    int status;

    return waitpid(p, &status, 0) == p && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(void)
{
    const char *want = getenv("CONCLAVE_STRESS_CALLS");
    uint64_t n_calls = want ? strtoull(want, NULL, 10) : CALLS, stopped = UINT64_MAX;
    pid_t producer, steward, consumer[CONSUMERS];
    uint64_t sleeps = 0, finds = 0, declined = 0, late = 0, dropped = 0;
    uint32_t fresh = PROC_FIRST_WORKER + CONSUMERS;
    struct rig r;
    struct world *x;

    rig_open(&r, n_calls, DEADLINE_NS);
    x = r.world;
    for (uint32_t i = 0; i < CONSUMERS; i++)
        consumer[i] = start(&r, 2, PROC_FIRST_WORKER + i, 0, 0);
    steward = start(&r, 1, 0, 0, 0);
    producer = start(&r, 0, 0, 0, 0);

    for (uint32_t k = 0; k < STOPS + DEATHS; k++) {
        uint32_t i = k % CONSUMERS;
        if (!wait_call(&r, n_calls * (k + 1) / (STOPS + DEATHS + 2)))
            break;
        if (k % 2) {
            consumer[i] = replace(&r, consumer[i], i, peek32(&x->live[i]), fresh);
            fresh++;
        } else {
            uint64_t n = stop_for_a_while(&r, consumer[i]);
            stopped = n < stopped ? n : stopped;
        }
    }
    CHECK(ended_well(producer), "producer");
    CHECK(ended_well(steward), "steward");
    for (uint32_t i = 0; i < CONSUMERS; i++)
        CHECK(ended_well(consumer[i]), "consumer %u", i);

    for (uint32_t o = PROC_FIRST_WORKER; o < fresh; o++) {
        sleeps += r.box[o]->count.sleeps;
        finds += r.box[o]->count.net_finds;
        declined += r.box[o]->count.declined;
        dropped += r.box[o]->count.dropped;
        late += x->late[o];
    }
    printf("%llu calls, %llu rows checked, in %.1f s (%.1f us a call)\n",
           (unsigned long long)x->producer.calls, (unsigned long long)x->producer.rows,
           (double)x->producer.ns / 1e9, (double)x->producer.ns / 1e3 / (double)n_calls);
    printf("call ring filled again %llu times, amendment ring %llu times\n",
           (unsigned long long)(n_calls / CALL_SLOTS),
           (unsigned long long)(x->steward.amendments / AMEND_SLOTS));
    printf("%llu amendments (%llu because a share came first), %llu declined, %llu taken from late "
           "owners, %llu late owners' givings\n",
           (unsigned long long)x->steward.amendments, (unsigned long long)x->steward.first_amended,
           (unsigned long long)declined, (unsigned long long)x->steward.late,
           (unsigned long long)late);
    printf("%llu disk items, %llu idle windows of %u calls, stopped for at least %llu calls, %u "
           "replaced\n",
           (unsigned long long)x->producer.disk_items, (unsigned long long)x->producer.idle_windows,
           IDLE_CALLS, (unsigned long long)stopped, fresh - PROC_FIRST_WORKER - CONSUMERS);
    printf("sleeps: consumers %llu, producer %llu, steward %llu; copies dropped: %llu\n",
           (unsigned long long)sleeps, (unsigned long long)x->producer.sleeps,
           (unsigned long long)x->steward_sleeps, (unsigned long long)dropped);
    printf("found by the time-out net: consumers %llu, producer %llu, steward %llu\n",
           (unsigned long long)finds, (unsigned long long)x->producer.net_finds,
           (unsigned long long)x->steward_net_finds);

    CHECK_EQ(x->producer.calls, n_calls);
    CHECK_EQ(x->producer.wrong, 0);
    CHECK(x->producer.rows >= 2 * n_calls, "too few");
    CHECK_EQ(finds, 0);
    CHECK_EQ(x->producer.net_finds, 0);
    CHECK_EQ(x->steward_net_finds, 0);
    CHECK(x->steward.amendments > 0, "none");
    CHECK(declined > 0, "none");
    CHECK(x->steward.declines > 0, "none");
    CHECK(x->steward.late > 0, "none");
    CHECK(late > 0, "none");
    CHECK(x->producer.disk_items > 0, "none");
    CHECK(n_calls / CALL_SLOTS > 0, "none");
    CHECK(x->steward.amendments / AMEND_SLOTS > 0, "none");
    CHECK(x->producer.idle_windows > 0, "none");
    CHECK(sleeps > 0, "none");
    CHECK(x->producer.sleeps > 0 && x->steward_sleeps > 0, "none");
    CHECK(stopped >= STOPPED_CALLS && stopped != UINT64_MAX, "too short");
    CHECK_EQ(fresh - PROC_FIRST_WORKER - CONSUMERS, DEATHS);
    return test_end();
}
