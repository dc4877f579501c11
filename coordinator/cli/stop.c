/* The one piece of global state of the program: what signals set. */
#include "coordinator/cli/stop.h"

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include "coordinator/supervise/leave.h"

#define STOP_SECONDS 5 /* for the token in work; a worker that is stopped would hold it up for ever */

static volatile sig_atomic_t may_ask, asked, tell_fd = -1, leave_after = STOP_SECONDS;

static void leave(int status)
{
    if (isatty(2)) /* a progress bar or a running value may be there */
        (void)!write(2, "\n", 1);
    leave_now();
    _exit(status);
}

static void on_signal(int sig)
{
    if (!may_ask || asked)
        leave(128 + sig);
    asked = 128 + sig;
    alarm((unsigned)leave_after);
    if (tell_fd >= 0)
        (void)!write(tell_fd, &(uint64_t){1}, sizeof(uint64_t));
}

static void on_alarm(int sig)
{
    (void)sig;
    if (asked && may_ask)
        leave(asked);
}

void stop_install(void)
{
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, before;

    sigemptyset(&sa.sa_mask);
    sigaction(SIGINT, NULL, &before);
    if (before.sa_handler !=
        SIG_IGN) /* a job in the background of a script: Ctrl-C is not for us */
        sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    sa.sa_handler = on_alarm;
    sigaction(SIGALRM, &sa, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a limit of file sizes is an error with a line */
}

void stop_may_ask(int on)
{
    may_ask = on;
}

void stop_tell(int fd, unsigned seconds)
{
    tell_fd = fd;
    leave_after = (sig_atomic_t)seconds;
    may_ask = 1;
}

int stop_asked(void)
{
    return asked;
}

int stop_ends(void)
{
    return asked == 128 + SIGINT ? 0 : asked;
}

void stop_forget(void)
{
    if (asked != 128 + SIGINT)
        return;
    alarm(0);
    asked = 0;
}
