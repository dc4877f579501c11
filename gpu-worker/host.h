/* The trunk's program in this process: follows the step records, executes each on the team of threads,
 * answers. Producer of the call ring as long as it lives. */
#pragma once
#include "shm/child.h"
#include "shm/team.h"

struct host;
/* first: number of its first call; behind: the record that was there before it (rules 22, 23). */
int host_open(const struct child *c, uint64_t first, uint64_t behind, struct host **out, struct err *e);
void host_close(struct host *h);
/* Leader of the team (team_run): says CTL_READY, then works until told to end. Negative: *e of
 * host_open's says why. */
int host_lead(void *host, struct team *t);
/* From any thread: ends host_lead after the step in work. A beat: the process lives. */
void host_quit(struct host *h);
void host_beat(struct host *h);
