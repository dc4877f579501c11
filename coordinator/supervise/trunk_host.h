/* The trunk's host: the card's worker that executes the trunk's program, and its successors. Hands steps
 * over as records, waits for the answers; when the host dies, buries its calls, starts another with a new
 * number, plays the sequence's tokens again and goes on (shm/model/README.md, rules 21 to 24). */
#pragma once
#include "coordinator/supervise/spawn.h"
#include "coordinator/supervise/watch.h"
#include "shm/child.h"
#include "kernels/attention/attention.h"
#include "shm/steps.h"
#include "coordinator/trunk/exec/step.h"
#include "coordinator/trunk/exec/wire.h"

#define TRUNK_HOST_SEGS (CHILD_SEGS - 3)
struct trunk_host_config { /* borrowed until trunk_host_close */
    const struct geometry *geo;
    struct board *board;
    struct bell *bells;
    struct calls *calls;
    const struct amends *amends;
    uint32_t card;                /* the one whose worker hosts the trunk */
    const char *device, *name;    /* as CTL_START and lines name it: "emu", "emulated card 0" */
    uint32_t expert_threads;      /* of that worker, beside the trunk's */
    /* What the worker with that outbox gets besides steps, answers and program; returns how many, room for
     * TRUNK_HOST_SEGS. */
    size_t (*segs)(void *arg, uint32_t outbox, struct worker_seg *s);
    /* Main thread: the worker is reaped and its calls are buried: nothing lies on its card; its successor with
     * that outbox follows the rings. */
    void (*lost)(void *arg);
    void (*back)(void *arg, uint32_t outbox);
    void *arg;
    const struct program *prog;
    const struct weight_at *at;
    enum kv_type kv;
    uint32_t threads;
    const int *cpu;               /* threads of them */
    _Atomic uint32_t *open;       /* 1 while a step is, for a steward whom no kernel can wake; NULL: the host rings */
    struct watch **watch;         /* for what cannot go on */
    int verbose;
};
struct trunk_host;
/* Makes the segments and starts the first host. Main thread. */
int trunk_host_open(const struct trunk_host_config *c, struct trunk_host **out, struct err *e);
void trunk_host_close(struct trunk_host *h);
/* As exec_step: the logits, valid until the next step. Main thread. A host that cannot be replaced ends the
 * program with one line. */
const float *trunk_host_step(struct trunk_host *h, const struct step *s);
const struct worker *trunk_host_worker(const struct trunk_host *h);
struct answers *trunk_host_answers(const struct trunk_host *h);
/* Tokens of the step in work, for who follows its calls (any thread); *seq: its record. */
uint32_t trunk_host_tokens(const struct trunk_host *h, uint64_t *seq);
