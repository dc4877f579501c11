/* The second piece of global state of the program, for the same reason as the first (cli/stop.c): signals. */
#include "coordinator/supervise/leave.h"

#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

static const struct termios *_Atomic terminal;

void leave_terminal(const struct termios *before)
{
    atomic_store(&terminal, before);
}

void leave_now(void)
{
    const struct termios *before = atomic_load(&terminal);

    if (!before)
        return;
    (void)!write(2, "\033[?2004l", 8); /* pasted text without marks again */
    tcsetattr(0, TCSANOW, before);
}
