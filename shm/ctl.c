/* The control socket. Every packet is one whole struct ctl_msg, so a packet of another size is an
 * error of the other side and not a beginning of something. Never blocks in sending. */
#define _GNU_SOURCE
#include "shm/ctl.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shm/bell.h"

#define FDS_SEEN                                                                                   \
    16 /* descriptors that a packet of a faulty peer may bring; all but one are closed */

int ctl_pair(int fd[2], struct err *e)
{
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd))
        return err_set(e, -errno, "no control socket: %s", strerror(errno));
    return 0;
}

int ctl_send(int fd, const struct ctl_msg *m, int send_fd)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {.iov_base = (void *)m, .iov_len = sizeof *m};
    struct msghdr h = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t n;

    if (send_fd >= 0) {
        struct cmsghdr *c;
        memset(&control, 0, sizeof control);
        h.msg_control = control.room;
        h.msg_controllen = sizeof control.room;
        c = CMSG_FIRSTHDR(&h);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &send_fd, sizeof send_fd);
    }
    do
        n = sendmsg(fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : 0;
}

/* 1: readable (or the peer has gone), 0: not within ms. */
static int wait_readable(int fd, int ms)
{
    uint64_t end = ms > 0 ? now_ns() + (uint64_t)ms * 1000000u : 0;
    struct pollfd p = {.fd = fd, .events = POLLIN};

    for (;;) {
        int n = poll(&p, 1, ms);
        uint64_t now;
        if (n >= 0)
            return n > 0;
        if (errno != EINTR)
            return -errno;
        if (ms > 0) { /* what is left of the time, rounded up */
            now = now_ns();
            ms = now < end ? (int)((end - now + 999999) / 1000000u) : 0;
        }
    }
}

/* The first descriptor of the packet, the others closed; -1: none. */
static int take_fd(struct msghdr *h)
{
    int first = -1;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (first < 0)
                first = fd;
            else
                close(fd);
        }
    }
    return first;
}

int ctl_recv(int fd, struct ctl_msg *m, int *got_fd, int ms)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(FDS_SEEN * sizeof(int))];
    } control;
    struct iovec part = {.iov_base = m, .iov_len = sizeof *m};
    struct msghdr h = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = control.room,
                       .msg_controllen = sizeof control.room};
    ssize_t n;
    int resets = 0, rc = wait_readable(fd, ms);

    *got_fd = -1;
    if (rc <= 0)
        return rc;
    do /* a peer that ended with unread messages: the reset is told once, before its last words */
        n = recvmsg(fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (n < 0 && (errno == EINTR || (errno == ECONNRESET && !resets++)));
    if (n < 0)
        return errno == EAGAIN ? 0 : errno == ECONNRESET ? -EPIPE : -errno;
    if (n == 0)
        return -EPIPE;
    *got_fd = take_fd(&h);
    if (n != sizeof *m || h.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
        if (*got_fd >= 0)
            close(*got_fd);
        *got_fd = -1;
        return -EPROTO;
    }
    m->text[CTL_TEXT - 1] = 0;
    return 1;
}

int ctl_sendf(int fd, enum ctl_kind kind, uint64_t a, const char *fmt, ...)
{
    struct ctl_msg m = {.kind = kind, .a = a};
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(m.text, sizeof m.text, fmt, ap);
    va_end(ap);
    return ctl_send(fd, &m, -1);
}
