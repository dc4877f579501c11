/* A worker's beginning, in real child processes. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/bell.h"
#include "shm/child.h"
#include "tests/test.h"

static int begin(int argc, char **argv)
{
    struct child c;
    struct err e = {0};
    int rc = child_begin(argc, argv, "worker", "a test's worker", &c, &e);

    if (rc)
        return 10;
    if (c.outbox != 5 || !child_seg(&c, SEG_BOARD, 0) || child_seg(&c, SEG_CALLS, 0))
        return 11;
    ((uint8_t *)child_seg(&c, SEG_BOARD, 0))[7] = 99;
    ctl_sendf(c.ctl, CTL_READY, 0, "ready");
    pause();
    return 12;
}

/* Runs begin() in a child with these words; its output goes nowhere. */
static pid_t start(char *a, char *b, char *c, char *d)
{
    char *argv[] = {"worker", a, b, c, d, NULL};
    int argc = 1, null;
    pid_t p;

    while (argv[argc])
        argc++;
    fflush(stdout);
    p = fork();
    if (p)
        return p;
    null = open("/dev/null", O_WRONLY);
    dup2(null, 1);
    dup2(null, 2);
    _exit(begin(argc, argv));
}

static int status_of(pid_t p)
{
    int status;

    return waitpid(p, &status, 0) == p && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

struct words {
    char parent[24], ctl[24], seg[64];
};
static struct words words_for(pid_t parent, int ctl, const struct seg *s, enum seg_role role)
{
    struct words w;

    snprintf(w.parent, sizeof w.parent, "%d", (int)parent);
    snprintf(w.ctl, sizeof w.ctl, "%d", ctl);
    snprintf(w.seg, sizeof w.seg, "%d:%u:%d:w", (int)role, s->index, s->fd);
    return w;
}

static void begins_well(const struct seg *s)
{
    struct ctl_msg m;
    int p[2], fd;
    struct words w;
    pid_t child;

    CHECK(!ctl_pair(p, NULL), "no pair");
    w = words_for(getpid(), p[1], s, SEG_BOARD);
    child = start(w.parent, "5", w.ctl, w.seg);
    close(p[1]);
    CHECK_EQ(ctl_recv(p[0], &m, &fd, 5000), 1);
    CHECK(m.kind == CTL_HELLO && !memcmp(m.build, build_id(), 16), "kind %u", m.kind);
    CHECK_EQ(m.a, child);
    CHECK_EQ(ctl_recv(p[0], &m, &fd, 5000), 1);
    CHECK_EQ(m.kind, CTL_READY);
    CHECK_EQ(((uint8_t *)s->base)[7], 99);
    kill(child, SIGINT); /* Ctrl-C is not for it */
    kill(child, SIGPIPE);
    CHECK_EQ(ctl_recv(p[0], &m, &fd, 50), 0);
    kill(child, SIGKILL);
    CHECK_EQ(status_of(child), -1);
    CHECK_EQ(ctl_recv(p[0], &m, &fd, 5000), -EPIPE);
    close(p[0]);
}

static void says_what_it_cannot_map(const struct seg *s)
{
    struct ctl_msg m;
    int p[2], fd;
    struct words w;
    pid_t child;

    CHECK(!ctl_pair(p, NULL), "no pair");
    w = words_for(getpid(), p[1], s, SEG_TABLES); /* it is the board */
    child = start(w.parent, "5", w.ctl, w.seg);
    CHECK_EQ(ctl_recv(p[0], &m, &fd, 5000), 1);
    CHECK_EQ(m.kind, CTL_HELLO);
    CHECK_EQ(ctl_recv(p[0], &m, &fd, 5000), 1);
    CHECK(m.kind == CTL_ERROR && strstr(m.text, "tables.0"), "%s", m.text);
    CHECK_EQ(status_of(child), 10);
    child = start(w.parent, "5", w.ctl, "1:0:xx:w");
    CHECK_EQ(ctl_recv(p[0], &m, &fd, 5000), 1);
    CHECK_EQ(ctl_recv(p[0], &m, &fd, 5000), 1);
    CHECK(m.kind == CTL_ERROR && strstr(m.text, "1:0:xx:w"), "%s", m.text);
    CHECK_EQ(status_of(child), 10);
    close(p[0]);
    close(p[1]);
}

static void started_by_hand(const struct seg *s)
{
    struct words w = words_for(getpid(), 0, s, SEG_BOARD);

    CHECK_EQ(status_of(start("--version", NULL, NULL, NULL)), 0);
    CHECK_EQ(status_of(start("--help", NULL, NULL, NULL)), 0);
    CHECK_EQ(status_of(start(NULL, NULL, NULL, NULL)), 2);
    CHECK_EQ(status_of(start("model.gguf", NULL, NULL, NULL)), 2);
    CHECK_EQ(status_of(start(w.parent, "5x", w.ctl, w.seg)), 2);
    CHECK_EQ(status_of(start(w.parent, "99999", w.ctl, w.seg)), 2);
    CHECK_EQ(status_of(start("1", "5", w.ctl, w.seg)), 10); /* not its parent */
}

/* The parent dies by SIGKILL: so does the child, without a word from anybody. */
static void dies_with_its_parent(const struct seg *s)
{
    struct ctl_msg m;
    int p[2], fd;
    pid_t middle, child = 0;

    CHECK(!ctl_pair(p, NULL), "no pair");
    fflush(stdout);
    middle = fork();
    if (!middle) {
        struct words w = words_for(getpid(), p[1], s, SEG_BOARD);
        start(w.parent, "5", w.ctl, w.seg);
        close(p[1]);
        pause();
        _exit(0);
    }
    close(p[1]);
    CHECK_EQ(ctl_recv(p[0], &m, &fd, 5000), 1);
    child = (pid_t)m.a;
    CHECK_EQ(ctl_recv(p[0], &m, &fd, 5000), 1);
    CHECK(child > 0 && !kill(child, 0), "pid %d", child);
    kill(middle, SIGKILL);
    CHECK_EQ(ctl_recv(p[0], &m, &fd, 5000), -EPIPE);
    waitpid(middle, NULL, 0);
    close(p[0]);
}

int main(void)
{
    struct err e = {0};
    struct seg s;

    CHECK(!seg_create(SEG_BOARD, 0, 4096, -1, &s, &e), "%s", e.msg);
    begins_well(&s);
    says_what_it_cannot_map(&s);
    started_by_hand(&s);
    dies_with_its_parent(&s);
    seg_close(&s);
    return test_end();
}
