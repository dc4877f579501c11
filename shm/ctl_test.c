/* The control socket: whole packets, descriptors, faulty and dead peers. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/bell.h"
#include "shm/ctl.h"
#include "tests/test.h"

static int open_fds(void)
{
    int n = 0;

    for (int i = 0; i < 200; i++)
        n += fcntl(i, F_GETFD) >= 0;
    return n;
}

static void between_processes(void)
{
    struct ctl_msg m = {.kind = CTL_FILE, .a = 3, .b = 1ull << 40, .text = "a file"}, got;
    int p[2], file, fd, status;
    pid_t child;
    char x = 0;

    CHECK(!ctl_pair(p, NULL), "no pair");
    child = fork();
    if (!child) {
        int pipe_end;
        close(p[0]);
        if (ctl_recv(p[1], &got, &pipe_end, -1) != 1 || got.kind != CTL_FILE || got.a != 3 ||
            got.b != 1ull << 40 || strcmp(got.text, "a file") || pipe_end < 0 ||
            !(fcntl(pipe_end, F_GETFD) & FD_CLOEXEC) || write(pipe_end, "z", 1) != 1 ||
            ctl_sendf(p[1], CTL_LOG, 2, "%s %d", "line", 7))
            _exit(1);
        _exit(0);
    }
    close(p[1]);
    file = open("/dev/null", O_RDWR);
    {
        int ends[2];
        CHECK(!pipe(ends), "no pipe");
        CHECK(!ctl_send(p[0], &m, ends[1]), "send");
        close(ends[1]);
        CHECK(read(ends[0], &x, 1) == 1 && x == 'z', "the descriptor works over there");
        close(ends[0]);
    }
    CHECK_EQ(ctl_recv(p[0], &got, &fd, -1), 1);
    CHECK(got.kind == CTL_LOG && got.a == 2 && fd == -1, "kind %u", got.kind);
    CHECK_STR(got.text, "line 7");
    CHECK_EQ(ctl_recv(p[0], &got, &fd, 1000), -EPIPE); /* it has ended */
    CHECK_EQ(ctl_send(p[0], &m, -1), -EPIPE);          /* and no signal came */
    CHECK(waitpid(child, &status, 0) == child && status == 0, "status %d", status);
    close(p[0]);
    close(file);
}

static void waits(void)
{
    struct ctl_msg got;
    int p[2], fd;
    uint64_t t = now_ns();

    CHECK(!ctl_pair(p, NULL), "no pair");
    CHECK_EQ(ctl_recv(p[0], &got, &fd, 0), 0);
    CHECK_EQ(ctl_recv(p[0], &got, &fd, 30), 0);
    t = now_ns() - t;
    CHECK(t > 25000000 && t < 5000000000u, "%llu ns", (unsigned long long)t);
    close(p[0]);
    close(p[1]);
}

static void long_text_is_cut(void)
{
    static char big[3 * CTL_TEXT];
    struct ctl_msg got;
    int p[2], fd;

    memset(big, 'x', sizeof big - 1);
    CHECK(!ctl_pair(p, NULL), "no pair");
    CHECK(!ctl_sendf(p[0], CTL_ERROR, 0, "%s", big), "send");
    CHECK_EQ(ctl_recv(p[1], &got, &fd, 100), 1);
    CHECK_EQ(strlen(got.text), CTL_TEXT - 1);
    close(p[0]);
    close(p[1]);
}

static void faulty_peers(void)
{
    char big[sizeof(struct ctl_msg) + 100] = {0};
    struct ctl_msg got;
    int p[2], fd;

    CHECK(!ctl_pair(p, NULL), "no pair");
    CHECK(send(p[0], big, sizeof got - 1, 0) > 0, "send");
    CHECK_EQ(ctl_recv(p[1], &got, &fd, 100), -EPROTO);
    CHECK(send(p[0], big, sizeof big, 0) > 0, "send");
    CHECK_EQ(ctl_recv(p[1], &got, &fd, 100), -EPROTO);
    memset(big, 'q', sizeof big); /* a text without an end */
    CHECK(send(p[0], big, sizeof got, 0) > 0, "send");
    CHECK_EQ(ctl_recv(p[1], &got, &fd, 100), 1);
    CHECK_EQ(strlen(got.text), CTL_TEXT - 1);
    close(p[0]);
    close(p[1]);
}

static void send_fds(int to, const void *data, size_t n, int count)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(8 * sizeof(int))];
    } control = {0};
    struct iovec part = {(void *)data, n};
    struct msghdr h = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = control.room,
                       .msg_controllen = CMSG_SPACE((size_t)count * sizeof(int))};
    struct cmsghdr *c = CMSG_FIRSTHDR(&h);
    int fds[8] = {0};

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
    memcpy(CMSG_DATA(c), fds, (size_t)count * sizeof(int));
    CHECK(sendmsg(to, &h, 0) == (ssize_t)n, "sendmsg");
}

static void too_many_descriptors(void)
{
    struct ctl_msg m = {.kind = CTL_FILE}, got;
    int p[2], fd, before;

    CHECK(!ctl_pair(p, NULL), "no pair");
    before = open_fds();
    send_fds(p[0], &m, sizeof m, 5);
    CHECK_EQ(ctl_recv(p[1], &got, &fd, 100), 1);
    CHECK(fd >= 0, "none");
    CHECK_EQ(open_fds(), before + 1); /* the others are closed */
    close(fd);
    send_fds(p[0], &m, 10, 2);
    CHECK_EQ(ctl_recv(p[1], &got, &fd, 100), -EPROTO);
    CHECK_EQ(fd, -1);
    CHECK_EQ(open_fds(), before);
    close(p[0]);
    close(p[1]);
}

static void full_socket(void)
{
    int p[2], rc = 0, n = 0;

    CHECK(!ctl_pair(p, NULL), "no pair");
    while (n < 100000 && !(rc = ctl_sendf(p[0], CTL_LOG, 0, "x")))
        n++;
    CHECK_EQ(rc, -EAGAIN); /* and it did not wait for anybody */
    close(p[0]);
    close(p[1]);
}

int main(void)
{
    between_processes();
    waits();
    long_text_is_cut();
    faulty_peers();
    too_many_descriptors();
    full_socket();
    return test_end();
}
