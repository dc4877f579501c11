/* What must be put right before the program ends, wherever it ends (a signal, a worker's death): a terminal
 * that is in another mode while a line is typed (cli/line_read.h). */
#pragma once
#include <termios.h>

/* The mode that standard input gets back at the end; NULL: there is nothing to put right any more. Borrows
 * before. */
void leave_terminal(const struct termios *before);
/* Puts it right. Safe in a signal handler and from any thread. */
void leave_now(void);
