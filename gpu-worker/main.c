/* conclave-gpu: a card's worker; so far the emulated card, whose kernels are the CPU's, and on it either the
 * trunk's program (it was sent one) or a pool of experts. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "gpu-worker/experts.h"
#include "gpu-worker/host.h"
#include "gpu-worker/probe.h"
#include "kernels/cpu.h"

#define MOST_THREADS 256u
#define BEAT_MS 100

struct start { /* CTL_START: a = first call, b = record that was there before; text: */
    uint32_t threads;
    int cpu[MOST_THREADS];
};
struct watcher { /* the thread that hears the coordinator while the team works */
    struct host *host;
    int ctl, signals;
};

/* "threads=N cpus=a,b,c" */
static int start_read(const char *text, struct start *s, struct err *e)
{
    const char *at = text;
    int used = 0;

    if (sscanf(at, "threads=%u cpus=%n", &s->threads, &used) == 1 && used && s->threads &&
        s->threads <= MOST_THREADS) {
        uint32_t i = 0;
        for (at += used; i < s->threads && *at >= '0' && *at <= '9'; i++) {
            char *end;
            s->cpu[i] = (int)strtol(at, &end, 10);
            at = end + (*end == ',');
        }
        if (i == s->threads && !*at)
            return 0;
    }
    return err_set(e, -EPROTO, "'%.100s' is no start (wanted: threads=N cpus=a,b)", text);
}

/* Ends at SIGTERM, CTL_QUIT, or the socket's end. Beats meanwhile. */
static void *watch(void *arg)
{
    struct watcher *w = arg;
    struct pollfd p[2] = {{.fd = w->ctl, .events = POLLIN}, {.fd = w->signals, .events = POLLIN}};
    struct ctl_msg m;
    int fd, rc;

    for (;;) {
        rc = poll(p, 2, BEAT_MS);
        host_beat(w->host);
        if (rc <= 0)
            continue;
        if (p[1].revents)
            break;
        rc = ctl_recv(w->ctl, &m, &fd, 0);
        if (fd >= 0)
            close(fd);
        if (rc < 0 || (rc == 1 && m.kind == CTL_QUIT))
            break;
    }
    host_quit(w->host);
    return NULL;
}

static int take_signals(struct err *e)
{
    sigset_t set;
    int fd;

    signal(SIGHUP, SIG_IGN); /* the terminal's; the coordinator decides what it means */
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, NULL); /* before any thread is made: all inherit it */
    fd = signalfd(-1, &set, SFD_CLOEXEC);
    return fd < 0 ? err_set(e, -errno, "signalfd: %s", strerror(errno)) : fd;
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

static int run(const struct child *c, struct err *e)
{
    struct watcher w = {.ctl = c->ctl, .signals = -1};
    struct start st;
    struct ctl_msg m;
    pthread_t thread;
    int rc = wait_start(c, &m, e);

    if (rc <= 0)
        return rc;
    if ((rc = w.signals = take_signals(e)) < 0)
        return rc;
    if ((rc = start_read(m.text, &st, e)) || (rc = host_open(c, m.a, m.b, &w.host, e)))
        goto done;
    rc = -pthread_create(&thread, NULL, watch, &w);
    if (rc) {
        err_set(e, rc, "cannot start a thread: %s", strerror(-rc));
        goto done;
    }
    rc = team_run((int)st.threads, st.cpu, 1, host_lead, w.host);
    pthread_cancel(thread);
    pthread_join(thread, NULL);
done:
    host_close(w.host);
    close(w.signals);
    return rc;
}

int main(int argc, char **argv)
{
    struct child c;
    struct err e = {0};
    const char *problem;

    if (argc == 2 && !strncmp(argv[1], "--probe", 7) && (!argv[1][7] || !strcmp(argv[1] + 7, "=measure")))
        return probe_main(argv[1][7] != 0); /* the coordinator asks, or a person */
    if (child_begin(argc, argv, "conclave-gpu", "Works on a card for conclave, which starts it.", &c, &e) < 0) {
        if (c.ctl < 0) /* else the coordinator was told, and says it */
            fprintf(stderr, "conclave-gpu: %s\n", e.msg);
        return 1;
    }
    problem = cpu_override_problem();
    if (problem)
        err_set(&e, -EINVAL, "%s", problem);
    else
        child_seg(&c, SEG_PROGRAM, 0) ? run(&c, &e) : experts_run(&c, &e);
    if (e.code)
        ctl_sendf(c.ctl, CTL_ERROR, 0, "%s", e.msg);
    return e.code ? 1 : 0;
}
