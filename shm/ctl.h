/* The control socket: a SOCK_SEQPACKET pair per worker for everything that is not per token:
 * hello, readiness, log lines, an error's text, a descriptor, goodbye. One message is one packet. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "shm/err.h"

enum ctl_kind {
    CTL_HELLO = 1, /* child: its build id and pid, before it maps anything */
    CTL_READY,     /* child: mapped, checked, following */
    CTL_LOG,       /* child: a line for the log; a = level (0 error, 1 warning, 2 info, 3 debug) */
    CTL_ERROR,     /* child: why it ends, or why an order failed; a = order number or 0 */
    CTL_FILE,      /* parent: a model file's descriptor; a = shard, b = its bytes; text = its name;
                    * flags bit 0: opened with O_DIRECT */
    CTL_START,     /* parent: everything was sent */
    CTL_QUIT,      /* parent: finish and exit 0 */
};
#define CTL_TEXT 1200
struct ctl_msg {
    uint32_t kind, flags;
    uint64_t a, b;
    char build[16];
    char text[CTL_TEXT]; /* NUL-terminated */
};

int ctl_pair(int fd[2], struct err *e);
/* send_fd < 0: none. A full socket or a dead peer: a negative errno, no signal. */
int ctl_send(int fd, const struct ctl_msg *m, int send_fd);
/* 1: got one (*got_fd -1 or a descriptor that is now the caller's); 0: nothing there within ms
 * (-1: wait for ever); -EPIPE: the peer has gone. Packets that are cut short or too long: -EPROTO. */
int ctl_recv(int fd, struct ctl_msg *m, int *got_fd, int ms);
/* printf into a message of that kind; long text is cut */
int ctl_sendf(int fd, enum ctl_kind kind, uint64_t a, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
