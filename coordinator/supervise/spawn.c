/* posix_spawn of the workers. Children get their control socket and their segments and nothing else:
 * every other descriptor of ours is close-on-exec. */
#define _GNU_SOURCE
#include "coordinator/supervise/spawn.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIRST_FD 3       /* descriptors in the child: control socket, then the segments */
#define HELLO_MS 20000   /* a loaded machine may take its time */
#define READY_MS 600000  /* mapping and locking large segments */
#define GOODBYE_MS 2000
#define CHILD_SEGS_MAX 80 /* as many as a child takes (shm/child.h) */

int spawn_beside_us(const char *program, char *path, size_t n, struct err *e)
{
    const char *programs = getenv("CONCLAVE_PROGRAMS"); /* unit tests, which lie elsewhere */
    ssize_t got = readlink("/proc/self/exe", path, n - 1);
    char *slash;

    if (programs)
        return snprintf(path, n, "%s/%s", programs, program) < (int)n
                   ? 0
                   : err_set(e, -ENAMETOOLONG, "CONCLAVE_PROGRAMS: the path is too long");
    if (got < 0)
        return err_set(e, -errno, "/proc/self/exe: %s", strerror(errno));
    path[got] = 0;
    slash = strrchr(path, '/');
    if (!slash || (size_t)(slash - path) + strlen(program) + 2 > n)
        return err_set(e, -ENAMETOOLONG, "%s: the path of this program is too long", path);
    strcpy(slash + 1, program);
    return 0;
}

void spawn_how_it_ended(int status, char *text, size_t n)
{
    if (WIFSIGNALED(status))
        snprintf(text, n, "was killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(text, n, "ended with status %d", WEXITSTATUS(status));
}

static int start(const char *path, struct worker *w, int ctl, const struct worker_seg *segs, size_t n_segs,
                 struct err *e)
{
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    sigset_t none;
    char numbers[3][16], seg_arg[CHILD_SEGS_MAX][48], *argv[CHILD_SEGS_MAX + 5];
    int moved[CHILD_SEGS_MAX + 1], rc, fd;
    size_t n = 0;

    if (n_segs > CHILD_SEGS_MAX)
        return err_set(e, -EINVAL, "%s: too many segments", w->name);
    /* dup2 onto itself would keep close-on-exec, and onto a descriptor that is still needed would lose
     * it: first all to numbers above those that the child will see */
    for (size_t i = 0; i <= n_segs; i++) {
        int from = i ? -1 : ctl;
        if (i) /* a reader gets a descriptor that cannot be mapped writable */
            from = segs[i - 1].writable ? segs[i - 1].seg->fd : seg_reader_fd(segs[i - 1].seg, e);
        moved[i] = from < 0 ? -1 : fcntl(from, F_DUPFD_CLOEXEC, FIRST_FD + (int)n_segs + 1);
        if (i && !segs[i - 1].writable && from >= 0)
            close(from);
        if (moved[i] < 0) {
            rc = err_set(e, -EMFILE, "%s: no descriptors left; raise the limit (ulimit -n 1024)", w->name);
            for (size_t k = 0; k < i; k++)
                close(moved[k]);
            return rc;
        }
    }
    posix_spawn_file_actions_init(&fa);
    posix_spawnattr_init(&attr);
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attr, &none);
    /* a group of its own: a signal for all of ours (timeout, a shell's kill %1) is the coordinator's to answer */
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    snprintf(numbers[0], sizeof numbers[0], "%ld", (long)getpid());
    snprintf(numbers[1], sizeof numbers[1], "%u", w->outbox);
    snprintf(numbers[2], sizeof numbers[2], "%d", FIRST_FD);
    argv[n++] = (char *)path;
    for (int i = 0; i < 3; i++)
        argv[n++] = numbers[i];
    for (size_t i = 0; i <= n_segs; i++) {
        fd = FIRST_FD + (int)i;
        posix_spawn_file_actions_adddup2(&fa, moved[i], fd);
        if (!i)
            continue;
        snprintf(seg_arg[i - 1], sizeof seg_arg[0], "%d:%u:%d:%c", segs[i - 1].seg->role,
                 segs[i - 1].seg->index, fd, segs[i - 1].writable ? 'w' : 'r');
        argv[n++] = seg_arg[i - 1];
    }
    argv[n] = NULL;
    /* whatever else is open here, a shell's descriptors among it, is not the child's */
    posix_spawn_file_actions_addclosefrom_np(&fa, FIRST_FD + (int)n_segs + 1);
    rc = posix_spawn(&w->pid, path, &fa, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&fa);
    posix_spawnattr_destroy(&attr);
    for (size_t i = 0; i <= n_segs; i++)
        close(moved[i]);
    if (rc) {
        w->pid = 0;
        return err_set(e, -rc, "%s: cannot start: %s%s", path, strerror(rc),
                       rc == ENOENT || rc == EACCES || rc == ENOEXEC
                           ? " (all programs of conclave are installed together)"
                           : "");
    }
    return 0;
}

/* The child has ended, or says something else than wanted. */
static int gone(struct worker *w, const char *who, struct err *e)
{
    char how[80] = "ended";
    int status;

    if (waitpid(w->pid, &status, 0) == w->pid) {
        spawn_how_it_ended(status, how, sizeof how);
        w->pid = 0;
    }
    return err_set(e, -ECHILD, "%s (%s) %s before it was ready", w->name, who, how);
}

int spawn_worker(const char *program, const char *name, uint32_t outbox, const struct worker_seg *segs,
                 size_t n_segs, struct worker *w, struct err *e)
{
    char path[PATH_MAX];
    struct ctl_msg m;
    int pair[2] = {-1, -1}, got_fd, rc;

    *w = (struct worker){.pidfd = -1, .ctl = -1, .outbox = outbox};
    snprintf(w->name, sizeof w->name, "%s", name);
    if ((rc = spawn_beside_us(program, path, sizeof path, e)) || (rc = ctl_pair(pair, e)))
        return rc;
    rc = start(path, w, pair[1], segs, n_segs, e);
    close(pair[1]);
    w->ctl = pair[0];
    if (rc)
        goto failed;
    w->pidfd = (int)syscall(SYS_pidfd_open, w->pid, 0);
    if (w->pidfd < 0) {
        rc = err_set(e, -errno, "%s: pidfd_open: %s", name, strerror(errno));
        goto failed;
    }
    fcntl(w->pidfd, F_SETFD, FD_CLOEXEC);
    rc = ctl_recv(w->ctl, &m, &got_fd, HELLO_MS);
    if (rc > 0 && got_fd >= 0)
        close(got_fd);
    if (rc > 0 && m.kind == CTL_HELLO && !memcmp(m.build, build_id(), sizeof m.build))
        return 0;
    if (rc > 0 && m.kind == CTL_HELLO)
        rc = err_set(e, -EINVAL, "%s: build %.16s, but this conclave is build %s: install them together",
                     path, m.build, build_id());
    else if (rc == 0)
        rc = err_set(e, -ETIMEDOUT, "%s: no answer from %s within %d s", name, path, HELLO_MS / 1000);
    else if (rc > 0)
        rc = err_set(e, -EPROTO, "%s: is no part of conclave", path);
    else
        rc = gone(w, path, e);
failed:
    spawn_kill(w);
    return rc;
}

int spawn_wait_ready(struct worker *w, struct err *e)
{
    struct ctl_msg m;
    char who[32];
    int got_fd, rc;

    while ((rc = ctl_recv(w->ctl, &m, &got_fd, READY_MS)) > 0) {
        if (got_fd >= 0)
            close(got_fd);
        if (m.kind == CTL_READY)
            return 0;
        if (m.kind == CTL_LOG && m.a <= 2)
            fprintf(stderr, "conclave: %s: %s\n", w->name, m.text);
        if (m.kind == CTL_ERROR)
            return err_set(e, -EIO, "%s: %s", w->name, m.text);
    }
    if (rc == 0)
        return err_set(e, -ETIMEDOUT, "%s: not ready within %d s", w->name, READY_MS / 1000);
    snprintf(who, sizeof who, "pid %ld", (long)w->pid);
    return gone(w, who, e);
}

static void forget(struct worker *w)
{
    if (w->pidfd >= 0)
        close(w->pidfd);
    if (w->ctl >= 0)
        close(w->ctl);
    w->pidfd = w->ctl = -1;
    w->pid = 0;
}

void spawn_kill(struct worker *w)
{
    if (w->pid > 0) {
        kill(w->pid, SIGKILL);
        while (waitpid(w->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    forget(w);
}

void spawn_end(struct worker *w, size_t n)
{
    struct ctl_msg quit = {.kind = CTL_QUIT};

    for (size_t i = 0; i < n; i++)
        if (w[i].pid > 0)
            ctl_send(w[i].ctl, &quit, -1);
    for (size_t i = 0; i < n; i++) {
        struct pollfd p = {.fd = w[i].pidfd, .events = POLLIN};
        if (w[i].pid > 0 && poll(&p, 1, GOODBYE_MS) > 0)
            while (waitpid(w[i].pid, NULL, 0) < 0 && errno == EINTR)
                ;
        else if (w[i].pid > 0)
            spawn_kill(&w[i]);
        forget(&w[i]);
    }
}
