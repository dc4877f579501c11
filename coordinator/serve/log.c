/* One write a line, so that lines of threads do not mix. journald puts the time in front; without it a time
 * would be there twice. Under systemd (JOURNAL_STREAM) a line begins with its priority. */
#include "coordinator/serve/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static enum log_level most = LOG_INFO; /* written before threads are */
static int to_journal;

void log_set(enum log_level level)
{
    most = level;
    to_journal = getenv("JOURNAL_STREAM") != NULL;
}

void log_line(enum log_level level, const char *fmt, ...)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    static const int priority[] = {3, 4, 6, 7};
    char line[1400];
    va_list ap;
    int n = 0, m;

    if (level > most)
        return;
    if (to_journal)
        n = snprintf(line, sizeof line, "<%d>", priority[level]);
    n += snprintf(line + n, sizeof line - (size_t)n, "conclave: %s: ", names[level]);
    va_start(ap, fmt);
    m = vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, ap);
    va_end(ap);
    if (m < 0)
        return;
    n = n + m > (int)sizeof line - 2 ? (int)sizeof line - 2 : n + m;
    for (int i = 0; i < n; i++) /* what a request says may hold anything; the line stays one */
        if ((unsigned char)line[i] < 32 || line[i] == 127)
            line[i] = '?';
    line[n++] = '\n';
    (void)!write(2, line, (size_t)n);
}
