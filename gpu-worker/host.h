/* The trunk's program in this process: follows the step records, executes each on a team of threads of its
 * own, answers. Producer of the call ring as long as it lives. Beside it the same process serves calls as
 * every card's worker does; own hits never become calls. */
#pragma once
#include "coordinator/trunk/exec/moe.h"
#include "gpu-worker/hits.h"
#include "gpu-worker/start.h"
#include "gpu-worker/upload.h"
#include "shm/child.h"

struct host_config { /* borrowed until host_close */
    const struct child *child;
    const struct maps *maps;
    const struct card_start *start;
    uint64_t first;          /* number of its first call (rule 22) */
    struct hits *hits;
    struct card *card;       /* a real one: the program runs there, and own hits in its graphs. NULL, or emulated: */
    struct moe_own own;      /* ... on a team here, and own hits this way */
    struct uploader *uploader;
};
struct host;
/* Takes over the program, makes buffers; nothing runs yet. */
int host_open(const struct host_config *c, struct host **out, struct err *e);
/* Starts its threads. What goes wrong there later is told over the control socket and ends the process. */
int host_start(struct host *h, struct err *e);
/* From any thread: no further step. */
void host_quit(struct host *h);
/* Waits for its threads, frees all. NULL is allowed. */
void host_close(struct host *h);
/* From any thread: the process lives. */
void host_beat(struct host *h);
