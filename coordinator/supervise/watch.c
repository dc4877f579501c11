/* The supervisor's eyes. Touches no ring and no model. Successors are children of this thread and would die
 * with it (PR_SET_PDEATHSIG): it ends them before it ends. */
#define _GNU_SOURCE
#include "coordinator/supervise/watch.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "coordinator/supervise/leave.h"
#include "shm/bell.h"

#define MAX_WATCHED 32
#define TICK_MS 100
#define STUCK_TICKS 50 /* without a beat: it hangs. Our own ticks, so that a slow machine kills nobody */
#define START_TICKS 1200 /* a card's driver, the pool, and all kernels loaded */

struct kept { /* what the thread knows of one that is replaced */
    uint64_t beat;
    uint32_t silent;
    char said[CTL_TEXT]; /* why it ends, in its own words or ours */
};
struct watch {
    struct worker *w;
    size_t n;
    struct watch_kept keep;
    struct kept kept[MAX_CARDS];
    int verbose, wake;
    _Atomic int stop;
    uint64_t ticked; /* now_ns() of the last tick */
    pthread_t thread;
    pthread_mutex_t once; /* the first fatal line is the one that counts */
};

void watch_fatal(struct watch *wt, const char *fmt, ...)
{
    char line[1500];
    va_list ap;

    pthread_mutex_lock(&wt->once); /* never unlocked: whoever comes second waits for the end */
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    fflush(stdout);
    fprintf(stderr, "conclave: %s\n", line);
    for (size_t i = 0; i < wt->n; i++)
        spawn_kill(&wt->w[i]);
    leave_now();
    _exit(1);
}

/* The kept worker's number, or -1. */
static int kept_of(const struct watch *wt, size_t i)
{
    return i >= wt->keep.first && i - wt->keep.first < wt->keep.n ? (int)(i - wt->keep.first) : -1;
}
static struct worker *worker_of(struct watch *wt, uint32_t k)
{
    return &wt->w[wt->keep.first + k];
}
static struct life *life_of(const struct watch *wt, uint32_t k)
{
    return &wt->keep.life[wt->keep.card[k]];
}

/* It is to end; its pidfd will say that it has. */
static void put_down(struct watch *wt, uint32_t k, const char *why)
{
    if (!wt->kept[k].said[0])
        snprintf(wt->kept[k].said, sizeof wt->kept[k].said, "%s", why);
    kill(worker_of(wt, k)->pid, SIGKILL);
}

static void message(struct watch *wt, size_t i)
{
    struct worker *w = &wt->w[i];
    int got_fd, rc, k = kept_of(wt, i);
    struct ctl_msg m;

    while ((rc = ctl_recv(w->ctl, &m, &got_fd, 0)) > 0) {
        if (got_fd >= 0)
            close(got_fd);
        if (m.kind == CTL_ERROR && k < 0)
            watch_fatal(wt, "%s (pid %d): %s", w->name, (int)w->pid, m.text);
        if (m.kind == CTL_ERROR)
            put_down(wt, (uint32_t)k, m.text);
        if (m.kind == CTL_LOG && (m.a <= 1 || wt->verbose))
            fprintf(stderr, "conclave: %s: %s\n", w->name, m.text);
        if (m.kind == CTL_READY && k >= 0 && life_turn(life_of(wt, (uint32_t)k)) == LIFE_STARTS) {
            wt->kept[k].silent = 0; /* it did not beat while it started */
            life_pass(life_of(wt, (uint32_t)k), LIFE_READY);
            wt->keep.news(wt->keep.arg);
        }
    }
    if (rc == -EPIPE && k >= 0) { /* its end takes a while: the pidfd says when */
        close(w->ctl);
        w->ctl = -1;
    }
}

static void gone(struct watch *wt, uint32_t k, const char *how)
{
    struct life *l = life_of(wt, k);

    snprintf(l->how, sizeof l->how, "%s", wt->kept[k].said[0] ? wt->kept[k].said : how);
    life_pass(l, LIFE_GONE);
    wt->keep.news(wt->keep.arg);
}

/* The worker has ended: reaped, its last words heard. */
static void ended(struct watch *wt, size_t i)
{
    struct worker *w = &wt->w[i];
    int k = kept_of(wt, i), status;
    char how[80] = "ended";
    pid_t pid = w->pid;

    message(wt, i);
    if (waitpid(pid, &status, 0) == pid)
        spawn_how_it_ended(status, how, sizeof how);
    w->pid = 0;
    if (k < 0)
        watch_fatal(wt, "%s (pid %d) %s; the run ends", w->name, (int)pid, how);
    spawn_kill(w); /* its descriptors */
    gone(wt, (uint32_t)k, how);
}

static void start(struct watch *wt, uint32_t k)
{
    struct life *l = life_of(wt, k);
    struct worker *w = worker_of(wt, k);
    struct err e = {0};

    memset(&wt->kept[k], 0, sizeof wt->kept[k]);
    l->pid = 0;
    if (wt->keep.start(wt->keep.arg, wt->keep.card[k], w, &e)) {
        spawn_kill(w);
        gone(wt, k, e.msg);
        return;
    }
    l->pid = (int)w->pid;
    life_pass(l, LIFE_STARTS);
}

/* About ten times a second: who hangs? */
static void tick(struct watch *wt)
{
    for (uint32_t k = 0; k < wt->keep.n; k++) {
        struct kept *x = &wt->kept[k];
        uint64_t beat = atomic_load_explicit(wt->keep.beat[wt->keep.card[k]], memory_order_relaxed);
        enum life_turn turn = life_turn(life_of(wt, k));
        int starts = turn == LIFE_STARTS;
        if (worker_of(wt, k)->pid <= 0)
            continue;
        x->silent = beat == x->beat ? x->silent + 1 : 0;
        x->beat = beat;
        if (x->silent == (starts ? START_TICKS : STUCK_TICKS))
            put_down(wt, k, starts ? "was not ready in time and was killed" : "gave no sign of life and was killed");
    }
}

/* What is due by the clock. Returns how many ms the next may take; -1: for ever. */
static int due(struct watch *wt)
{
    uint64_t now = now_ns();
    int ms = wt->keep.n ? TICK_MS : -1;

    if (wt->keep.n && now - wt->ticked >= TICK_MS * 900000ull) {
        wt->ticked = now;
        tick(wt);
    }
    for (uint32_t k = 0; k < wt->keep.n; k++) {
        const struct life *l = life_of(wt, k);
        if (life_turn(l) != LIFE_WAITS)
            continue;
        if (now < l->not_before && (int64_t)(l->not_before - now) / 1000000 < ms)
            ms = (int)((l->not_before - now) / 1000000) + 1;
        if (now >= l->not_before && (!l->hosts || atomic_load(&l->buried) > atomic_load(&l->last_up)))
            start(wt, k);
    }
    return ms;
}

/* Those that are children of this thread. */
static void end_successors(struct watch *wt)
{
    for (uint32_t k = 0; k < wt->keep.n; k++)
        if (life_of(wt, k)->number)
            spawn_end(worker_of(wt, k), 1);
}

static void *run(void *arg)
{
    struct watch *wt = arg;
    struct pollfd p[2 * MAX_WATCHED + 1];
    size_t n = wt->n;
    uint64_t woken;

    for (;;) {
        int ms = due(wt);
        for (size_t i = 0; i < n; i++) { /* one that is down has none: -1 is passed over */
            p[2 * i] = (struct pollfd){.fd = wt->w[i].ctl, .events = POLLIN};
            p[2 * i + 1] = (struct pollfd){.fd = wt->w[i].pidfd, .events = POLLIN};
        }
        p[2 * n] = (struct pollfd){.fd = wt->wake, .events = POLLIN};
        if (poll(p, 2 * n + 1, ms) <= 0)
            continue;
        if (p[2 * n].revents && read(wt->wake, &woken, sizeof woken) == sizeof woken &&
            atomic_load_explicit(&wt->stop, memory_order_acquire))
            break;
        for (size_t i = 0; i < n; i++) /* a dying worker's last words first */
            if (p[2 * i].revents & POLLIN)
                message(wt, i);
        for (size_t i = 0; i < n; i++)
            if (p[2 * i + 1].revents)
                ended(wt, i);
    }
    end_successors(wt);
    return NULL;
}

int watch_start(struct worker *w, size_t n, const struct watch_kept *kept, int verbose, struct watch **out,
                struct err *e)
{
    struct watch *wt = calloc(1, sizeof *wt);
    int rc;

    if (!wt || n > MAX_WATCHED) {
        free(wt);
        return err_set(e, -ENOMEM, "no memory to watch %zu processes", n);
    }
    wt->w = w;
    wt->n = n;
    if (kept)
        wt->keep = *kept;
    wt->verbose = verbose;
    wt->wake = eventfd(0, EFD_CLOEXEC);
    pthread_mutex_init(&wt->once, NULL);
    rc = wt->wake < 0 ? errno : pthread_create(&wt->thread, NULL, run, wt);
    if (rc) {
        if (wt->wake >= 0)
            close(wt->wake);
        free(wt);
        return err_set(e, -rc, "cannot start the watching thread: %s", strerror(rc));
    }
    *out = wt;
    return 0;
}

void watch_wake(struct watch *wt)
{
    uint64_t one = 1;

    if (write(wt->wake, &one, sizeof one) != sizeof one)
        watch_fatal(wt, "the watching thread cannot be woken: %s", strerror(errno));
}

void watch_stop(struct watch *wt)
{
    if (!wt)
        return;
    atomic_store_explicit(&wt->stop, 1, memory_order_release);
    watch_wake(wt);
    pthread_join(wt->thread, NULL);
    close(wt->wake);
    free(wt);
}
