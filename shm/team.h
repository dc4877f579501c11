/* A process's team of threads: one OpenMP parallel region for its lifetime, threads pinned. Thread 0
 * (the leader, the caller of team_run) works and hands out; the others wait as shm/bell.h says, by
 * rounds and then on a futex, never at an OpenMP barrier (libgomp spins there for milliseconds on
 * cores that another process needs). */
#pragma once
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct team;
typedef void team_fn(void *arg, int thread, int n_threads);

/* Opens a team of n threads (>= 1) on the cores cpus[0..n-1] (NULL: not pinned) and runs leader(arg,
 * team) as thread 0; returns its result when it returns. shared: other processes' teams use the same
 * cores, so a waiting thread yields each round. */
int team_run(int n, const int *cpus, int shared, int (*leader)(void *arg, struct team *t), void *arg);

/* Leader only: every thread runs fn(arg, thread, n); returns when all are done. */
void team_do(struct team *t, team_fn *fn, void *arg);
/* Inside fn: all threads meet. */
void team_meet(struct team *t);
int team_size(const struct team *t);
int team_shared(const struct team *t);
/* Threads that could not be pinned so far (a container took the core away): worth one log line. Exact
 * after the first team_do. */
int team_unpinned(const struct team *t);
