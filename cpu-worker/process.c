/* What a node's worker and a card's have in common as processes: start, signals, control socket, end. */
#define _GNU_SOURCE
#include "cpu-worker/process.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "cpu-worker/worker.h"

#define BEAT_MS 100

struct watcher { /* the thread that hears the coordinator while the team works */
    const struct process_more *more;
    int ctl, signals;
    struct bell *bell; /* the leader's */
    _Atomic int quit;
};

/* SIGTERM, SIGINT and SIGHUP reach the watcher and nobody else. The last two are the terminal's: it
 * sends them to every process, and the coordinator decides what they mean. */
static int take_signals(struct err *e)
{
    sigset_t set;
    int fd;

    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, NULL); /* before any thread is made: all inherit it */
    fd = signalfd(-1, &set, SFD_CLOEXEC);
    return fd < 0 ? err_set(e, -errno, "signalfd: %s", strerror(errno)) : fd;
}

/* Ends at SIGTERM, CTL_QUIT, or the socket's end; nothing else is sent to a worker that runs. */
static void *watch(void *arg)
{
    struct watcher *w = arg;
    struct pollfd p[2] = {{.fd = w->ctl, .events = POLLIN}, {.fd = w->signals, .events = POLLIN}};
    struct ctl_msg m;
    int fd, rc;

    for (;;) {
        int beats = w->more && w->more->beat, n = poll(p, 2, beats ? BEAT_MS : -1);
        if (beats)
            w->more->beat(w->more->arg);
        if (n <= 0)
            continue;
        if (p[1].revents)
            break;
        rc = ctl_recv(w->ctl, &m, &fd, 0);
        if (fd >= 0)
            close(fd);
        if (rc < 0 || (rc == 1 && m.kind == CTL_QUIT))
            break;
        if (rc == 1)
            ctl_sendf(w->ctl, CTL_LOG, 1, "a message of kind %u means nothing to a worker", m.kind);
    }
    if (w->more && w->more->quit)
        w->more->quit(w->more->arg);
    atomic_store_explicit(&w->quit, 1, memory_order_release);
    bell_wake(w->bell);
    return NULL;
}

/* Waits for CTL_START. 1: it came; 0: told to end before; negative: *e. */
static int wait_start(const struct child *c, struct ctl_msg *m, struct err *e)
{
    int fd, rc;

    do {
        rc = ctl_recv(c->ctl, m, &fd, -1);
        if (fd >= 0)
            close(fd);
    } while (!rc);
    if (rc == -EPIPE || (rc == 1 && m->kind == CTL_QUIT))
        return 0;
    if (rc < 0)
        return err_set(e, rc, "control socket: %s", strerror(-rc));
    if (m->kind != CTL_START)
        return err_set(e, -EPROTO, "a message of kind %u came where CTL_START was due", m->kind);
    return 1;
}

int process_run(const struct child *c, const struct process_more *more, struct err *e)
{
    struct watcher watcher = {.more = more, .ctl = c->ctl, .signals = -1};
    struct worker w = {0};
    struct start st = {0};
    struct maps m = {0};
    struct passer passer = {0};
    struct ctl_msg msg;
    pthread_t thread;
    const char *text = msg.text;
    int watching = 0, rc = wait_start(c, &msg, e);

    if (rc <= 0)
        return rc;
    rc = watcher.signals = take_signals(e);
    if (rc < 0)
        goto done;
    if ((more && (rc = more->start(more->arg, &text, e))) || (rc = start_read(text, &st, e)) ||
        (rc = maps_take(&m, c, e)) ||
        (more && (rc = more->begin(more->arg, c, &m, &msg, &passer, e))) ||
        (rc = worker_init(&w, &m, &passer, st.threads, msg.a, msg.b, e)))
        goto done;
    w.ctl = c->ctl;
    w.quit = &watcher.quit;
    watcher.bell = &m.bells[outbox_home(m.self)];
    rc = -pthread_create(&thread, NULL, watch, &watcher);
    if (rc) {
        err_set(e, rc, "cannot start a thread: %s", strerror(-rc));
        goto done;
    }
    watching = 1;
    rc = team_run(st.threads, st.cpus, st.shared, worker_lead, &w);
    if (rc < 0 && more) { /* the program's own threads may wait for what will not come */
        ctl_sendf(c->ctl, CTL_ERROR, 0, "%s", e->msg);
        _exit(1);
    }
done:
    if (watching) {
        pthread_cancel(thread);
        pthread_join(thread, NULL);
    }
    worker_drop(&w);
    if (more)
        more->end(more->arg);
    maps_drop(&m);
    free(st.cpus);
    if (watcher.signals >= 0)
        close(watcher.signals);
    return rc;
}
