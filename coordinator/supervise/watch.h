/* Watches the workers: their log lines, their error texts, their death. One thread that sleeps in
 * poll(). Until workers can be replaced, a death ends the program: one line, status 1. */
#pragma once
#include "coordinator/supervise/spawn.h"

struct watch;
/* Borrows the workers until watch_stop. */
int watch_start(struct worker *w, size_t n, int verbose, struct watch **out, struct err *e);
void watch_stop(struct watch *wt); /* NULL is allowed */
/* Ends the program from any thread: kills and reaps the workers, one line, status 1. */
void watch_fatal(struct watch *wt, const char *fmt, ...) __attribute__((format(printf, 2, 3), noreturn));
