/* Errors: one line, written where the cause is known and passed up.
 *
 * Functions that can fail return 0 or a negative errno and take `struct err *e` last. */
#pragma once
#include <errno.h>

struct err {
    int code;       /* negative errno of the first error, 0: none */
    char msg[1024]; /* one line without newline: the thing, what was wanted, what was found */
};

/* Writes the message, unless one is there already (the first cause wins). e may be NULL.
 * Returns code (negative), so that `return err_set(...)` reads well. */
int err_set(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
