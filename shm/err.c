/* The one way an error message is made. Never prints: whoever ends the program does. */
#include "shm/err.h"

#include <stdarg.h>
#include <stdio.h>

int err_set(struct err *e, int code, const char *fmt, ...)
{
    va_list ap;

    if (!e || e->code)
        return code;
    e->code = code;
    va_start(ap, fmt);
    vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    va_end(ap);
    for (char *p = e->msg; *p;
         p++) /* a name from a file may hold anything; the line stays one line */
        if ((unsigned char)*p < 32 || *p == 127)
            *p = '?';
    return code;
}
