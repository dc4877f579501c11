/* The heat file of a run (residency/heat_file.h): read at the start, written every few minutes and at
 * the end. The policy belongs to the steward's thread and writing takes its time, so a thread of its
 * own asks the steward for a copy and writes that. Whatever fails costs a line, never the run. */
#pragma once
#include <stdint.h>

#include "coordinator/residency/policy.h"
#include "shm/err.h"

struct gguf;
struct heat_keeper;

/* Reads the model's heat. NULL: there is no place for it, or no memory; a line was written. */
struct heat_keeper *heat_keeper_open(const struct gguf *g, uint32_t n_layers, uint32_t n_experts);
/* 1 if a heat file was read: its values go to the policy. Before heat_keeper_start. */
int heat_keeper_tell(const struct heat_keeper *k, struct policy *p);
/* Writes every few minutes from now on; ring(arg) wakes the thread that has the policy. */
void heat_keeper_start(struct heat_keeper *k, void (*ring)(void *arg), void *arg);
/* The thread that has the policy: is a copy wanted? Then, and at its end, it hands one over; p NULL:
 * nothing was used since the last one. */
int heat_keeper_wants(const struct heat_keeper *k);
void heat_keeper_give(struct heat_keeper *k, const struct policy *p);
/* Ends the thread, without writing. */
void heat_keeper_stop(struct heat_keeper *k);
/* Writes what was given last, if anything has been used since the start; frees. NULL is allowed. */
void heat_keeper_close(struct heat_keeper *k);
