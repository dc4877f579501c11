/* The trunk's host: the card's worker that executes the trunk's program, and its successors. Hands steps
 * over as records, waits for the answers; when the host dies, buries its calls, starts another with a new
 * number and goes on (shm/model/README.md, rules 21 to 24). A sequence's tokens are played again before its
 * next step: one that nobody asks for any more costs nothing. */
#pragma once
#include "coordinator/supervise/spawn.h"
#include "coordinator/supervise/watch.h"
#include "shm/child.h"
#include "kernels/attention/attention.h"
#include "shm/steps.h"
#include "coordinator/trunk/exec/step.h"
#include "coordinator/trunk/exec/wire.h"

#define TRUNK_HOST_SEGS 3
struct trunk_host_config { /* borrowed until trunk_host_close */
    const struct geometry *geo;
    struct board *board;
    struct bell *bells;
    struct calls *calls;
    struct life *life;            /* of the card whose worker hosts the trunk */
    const struct program *prog;
    const struct weight_at *at;
    enum kv_type kv;
    uint32_t threads;
    const int *cpu;               /* threads of them */
    _Atomic uint32_t *open;       /* 1 while a step is, for a steward whom no kernel can wake; NULL: the host rings */
    struct watch **watch;
    /* as exec_config's: handed over with each record, and so awaited before it; NULL: the program has no tables */
    void (*rows)(void *arg, const struct step *s, struct step_rows *out);
    void *rows_arg;
};
struct trunk_host;
/* Makes the segments. Main thread. */
int trunk_host_open(const struct trunk_host_config *c, struct trunk_host **out, struct err *e);
void trunk_host_close(struct trunk_host *h);
/* What its next worker gets: TRUNK_HOST_SEGS segments; what CTL_START says between the device and the experts'
 * threads; the number of its first call is behind that of *calls. Before the first step, or by who starts it. */
void trunk_host_segs(struct trunk_host *h, struct worker_seg *s);
void trunk_host_says(const struct trunk_host *h, char *text, size_t n, uint64_t *calls);
/* As exec_step: the logits, valid until the next step. Main thread. NULL: the card was left out, and another
 * executor goes on: with call trunk_host_next_call. Its state is empty: before each step it has to do
 *     while (trunk_host_owed(h, s, &m)) { do m; trunk_host_did(h, &m); }
 * and after it trunk_host_did(h, s). m: a pass of tokens that the step stands on, valid until the next call. */
const float *trunk_host_step(struct trunk_host *h, const struct step *s);
/* A pass of the NextN block over rows of the last step, or its chain; NULL: the host died over it, and what it had of
 * the block's rows is gone (who asks again begins with row 0). */
const float *trunk_host_draft(struct trunk_host *h, const struct step *s);
/* What a sequence keeps besides rows by position, to a slot of the host and back (STEP_SAVE). 0; -1: it has not, or
 * not any more. It has nothing that an earlier host had. */
int trunk_host_save(struct trunk_host *h, uint32_t seq, uint32_t pos, uint32_t slot);
int trunk_host_restore(struct trunk_host *h, uint32_t seq, uint32_t pos, uint32_t slot);
/* The sequence's tokens are all played again before its next step; all from pos on; so many are there. */
void trunk_host_forget(struct trunk_host *h, uint32_t seq);
void trunk_host_keeps(struct trunk_host *h, uint32_t seq, uint32_t pos);
uint32_t trunk_host_has(const struct trunk_host *h, uint32_t seq);
/* Of the last step: the first token of each wanted row's order (TOKEN_NONE: it has none), until the next one. NULL:
 * the host does not tell. Where a step wanted nothing else and this is told, its logits mean nothing. */
const uint32_t *trunk_host_best(const struct trunk_host *h);
uint64_t trunk_host_next_call(const struct trunk_host *h);
int trunk_host_owed(struct trunk_host *h, const struct step *s, struct step *m);
void trunk_host_did(struct trunk_host *h, const struct step *s);
const _Atomic uint64_t *trunk_host_word(const struct trunk_host *h); /* of the step records */
struct trunk_host_counters {
    uint32_t successors;
    uint64_t retired, replayed; /* open calls of the dead; tokens played again */
    uint64_t chosen_ns, chosen; /* between an answer, seen here, and the next record, of one token */
};
const struct trunk_host_counters *trunk_host_counters(const struct trunk_host *h);
/* What the hosts told, each since its own start (answers.count), added up. Any thread. */
void trunk_host_told(const struct trunk_host *h, struct answer_counters *sum);
struct answers *trunk_host_answers(const struct trunk_host *h);
/* Tokens of the step in work, for who follows its calls (any thread); *seq: its record. */
uint32_t trunk_host_tokens(const struct trunk_host *h, uint64_t *seq);
