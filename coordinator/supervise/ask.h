/* Runs a program to its end and takes what it says on standard output. It may do anything. */
#pragma once
#include <stddef.h>

#include "shm/err.h"

/* argv[0]: the program's path. Its standard input is empty. Hands over *text, *n bytes and a NUL, fewer than
 * `most`. Negative, in one line: it cannot be started, does not end within limit_ms (it is killed), ends with
 * another status than 0 (with the first line of its stderr), or says too much. Reaps it, except where it
 * cannot be killed. */
int ask(char *const argv[], size_t most, int limit_ms, char **text, size_t *n, struct err *e);
