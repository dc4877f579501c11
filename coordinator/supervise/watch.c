/* The supervisor's eyes. Touches no ring and no model. */
#define _GNU_SOURCE
#include "coordinator/supervise/watch.h"

#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_WATCHED 32

struct watch {
    struct worker *w;
    size_t n;
    int verbose, stop;
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
    _exit(1);
}

static void message(struct watch *wt, struct worker *w)
{
    struct ctl_msg m;
    int got_fd, rc;

    while ((rc = ctl_recv(w->ctl, &m, &got_fd, 0)) > 0) {
        if (got_fd >= 0)
            close(got_fd);
        if (m.kind == CTL_ERROR)
            watch_fatal(wt, "%s (pid %d): %s", w->name, (int)w->pid, m.text);
        if (m.kind == CTL_LOG && (m.a <= 1 || wt->verbose))
            fprintf(stderr, "conclave: %s: %s\n", w->name, m.text);
    }
}

static void *run(void *arg)
{
    struct watch *wt = arg;
    struct pollfd p[2 * MAX_WATCHED + 1];
    size_t n = wt->n;

    for (;;) {
        for (size_t i = 0; i < n; i++) {
            p[2 * i] = (struct pollfd){.fd = wt->w[i].ctl, .events = POLLIN};
            p[2 * i + 1] = (struct pollfd){.fd = wt->w[i].pidfd, .events = POLLIN};
        }
        p[2 * n] = (struct pollfd){.fd = wt->stop, .events = POLLIN};
        if (poll(p, 2 * n + 1, -1) < 0)
            continue;
        if (p[2 * n].revents)
            return NULL;
        for (size_t i = 0; i < n; i++) /* a dying worker's last words first */
            if (p[2 * i].revents & POLLIN)
                message(wt, &wt->w[i]);
        for (size_t i = 0; i < n; i++) {
            char how[80] = "ended";
            int status;
            if (!p[2 * i + 1].revents)
                continue;
            message(wt, &wt->w[i]);
            pid_t pid = wt->w[i].pid;
            if (waitpid(pid, &status, 0) == pid) {
                spawn_how_it_ended(status, how, sizeof how);
                wt->w[i].pid = 0;
            }
            watch_fatal(wt, "%s (pid %d) %s; the run ends", wt->w[i].name, (int)pid, how);
        }
    }
}

int watch_start(struct worker *w, size_t n, int verbose, struct watch **out, struct err *e)
{
    struct watch *wt = calloc(1, sizeof *wt);
    int rc;

    if (!wt || n > MAX_WATCHED) {
        free(wt);
        return err_set(e, -ENOMEM, "no memory to watch %zu processes", n);
    }
    wt->w = w;
    wt->n = n;
    wt->verbose = verbose;
    wt->stop = eventfd(0, EFD_CLOEXEC);
    pthread_mutex_init(&wt->once, NULL);
    rc = wt->stop < 0 ? errno : pthread_create(&wt->thread, NULL, run, wt);
    if (rc) {
        if (wt->stop >= 0)
            close(wt->stop);
        free(wt);
        return err_set(e, -rc, "cannot start the watching thread: %s", strerror(rc));
    }
    *out = wt;
    return 0;
}

void watch_stop(struct watch *wt)
{
    uint64_t one = 1;

    if (!wt)
        return;
    if (write(wt->stop, &one, sizeof one) == sizeof one)
        pthread_join(wt->thread, NULL);
    close(wt->stop);
    free(wt);
}
