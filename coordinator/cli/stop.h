/* Ctrl-C (SIGINT) and SIGTERM. While an answer is written the first one asks for its end, the
 * second, or the answer not ending within seconds, leaves at once; at any other time (loading, teardown) the first one leaves at once.
 * Leaving at once takes the workers along: they die with this process. */
#pragma once

void stop_install(void);
/* From here on, or no longer, the first signal only asks. */
void stop_may_ask(int on);
/* The same for a server, which needs time to end its answers: the first signal writes to fd, an eventfd, as well, and
 * the program leaves after `seconds`, not some few. */
void stop_tell(int fd, unsigned seconds);
/* The exit status to end with (128 + signal), or 0: nobody asked. */
int stop_asked(void);
/* The same, but Ctrl-C asked for the end of one answer only. */
int stop_ends(void);
/* The answer ended as asked; the program goes on. */
void stop_forget(void);
