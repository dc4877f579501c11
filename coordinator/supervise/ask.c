/* A child that may do anything: it is given a pipe for each of its streams and a time limit. */
#define _GNU_SOURCE
#include "coordinator/supervise/ask.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "coordinator/supervise/spawn.h"

#define REAP_MS 2000
#define LINE_MOST 300u /* of its stderr, kept */

struct asked {
    pid_t pid;
    int out, err;      /* our ends; -1: at its end */
    char *text;        /* most + 1 */
    size_t n, most;
    char line[LINE_MOST + 1]; /* the beginning of its stderr */
    size_t line_n;
};

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int start(char *const argv[], struct asked *c, struct err *e)
{
    int out[2] = {-1, -1}, err[2] = {-1, -1}, rc;
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    sigset_t none;

    if (pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC)) {
        rc = err_set(e, -errno, "no pipe: %s", strerror(errno));
        goto done;
    }
    posix_spawn_file_actions_init(&fa);
    posix_spawnattr_init(&attr);
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
    posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&fa, out[1], 1);
    posix_spawn_file_actions_adddup2(&fa, err[1], 2);
    posix_spawn_file_actions_addclosefrom_np(&fa, 3);
    rc = posix_spawn(&c->pid, argv[0], &fa, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&fa);
    posix_spawnattr_destroy(&attr);
    if (rc) {
        c->pid = 0;
        rc = err_set(e, -rc, "cannot start: %s", strerror(rc));
    } else {
        c->out = out[0];
        c->err = err[0];
        out[0] = err[0] = -1;
    }
done:
    for (int i = 0; i < 2; i++) {
        if (out[i] >= 0)
            close(out[i]);
        if (err[i] >= 0)
            close(err[i]);
    }
    return rc;
}

/* 1: read something; 0: its end, the descriptor is closed. */
static int take(int *fd, char *to, size_t room, size_t *n)
{
    char lost[4096];
    ssize_t got = *n < room ? read(*fd, to + *n, room - *n) : read(*fd, lost, sizeof lost);

    if (got < 0 && errno == EINTR)
        return 1;
    if (got > 0) {
        *n += *n < room ? (size_t)got : 0;
        return 1;
    }
    close(*fd);
    *fd = -1;
    return 0;
}

/* Until both streams end. -ETIMEDOUT. */
static int listen_to(struct asked *c, int ms, struct err *e)
{
    int64_t end = now_ms() + ms;

    while (c->out >= 0 || c->err >= 0) {
        struct pollfd p[2] = {{.fd = c->out, .events = POLLIN}, {.fd = c->err, .events = POLLIN}};
        int64_t left = end - now_ms();
        if (left <= 0)
            return err_set(e, -ETIMEDOUT, "no answer within %d s", ms / 1000);
        if (poll(p, 2, (int)left) <= 0)
            continue;
        if (p[0].revents)
            take(&c->out, c->text, c->most, &c->n);
        if (p[1].revents)
            take(&c->err, c->line, LINE_MOST, &c->line_n);
    }
    return 0;
}

/* How it ended, and the first line of its stderr; it is killed first if it is to be. */
static int reap(struct asked *c, int kill_it, struct err *e)
{
    char how[80], *line_end;
    int status = 0;
    pid_t got = 0;

    if (kill_it)
        kill(c->pid, SIGKILL);
    /* a driver that hangs does not let go of a process either: then it is left to the end of this one */
    for (int64_t end = now_ms() + REAP_MS; (got = waitpid(c->pid, &status, kill_it ? WNOHANG : 0)) <= 0;) {
        if ((got < 0 && errno != EINTR) || (kill_it && now_ms() > end))
            break;
        poll(NULL, 0, 1);
    }
    if (got == c->pid)
        c->pid = 0;
    if (kill_it || !status)
        return 0;
    spawn_how_it_ended(status, how, sizeof how);
    c->line[c->line_n] = 0;
    line_end = strchr(c->line, '\n'); /* the loader's line on a library that is missing, for one */
    if (line_end)
        *line_end = 0;
    for (char *x = c->line; *x; x++)
        if ((unsigned char)*x < 32)
            *x = '?';
    return err_set(e, -ECHILD, "it %s%s%s", how, *c->line ? ": " : "", c->line);
}

int ask(char *const argv[], size_t most, int limit_ms, char **text, size_t *n, struct err *e)
{
    struct asked c = {.out = -1, .err = -1, .most = most};
    int rc;

    c.text = malloc(most + 1);
    if (!c.text)
        return err_set(e, -ENOMEM, "no memory");
    rc = start(argv, &c, e);
    if (!rc) {
        int late = listen_to(&c, limit_ms, e);
        rc = reap(&c, late != 0, e);
        rc = late ? late : rc;
    }
    if (!rc && c.n == most)
        rc = err_set(e, -EPROTO, "it says too much");
    if (c.out >= 0)
        close(c.out);
    if (c.err >= 0)
        close(c.err);
    if (rc) {
        free(c.text);
        return rc;
    }
    c.text[c.n] = 0;
    *text = c.text;
    *n = c.n;
    return 0;
}
