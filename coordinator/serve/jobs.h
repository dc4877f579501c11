/* Requests for tokens and who serves them: a queue, N slots (sequences of the engine), a scheduler. Ids in,
 * ids out; text, stop strings and HTTP are the caller's (front.h), who cancels a job that has said enough.
 *
 *   main thread                                   any other thread
 *   jobs_open(&o, &j, e)                          jobs_submit: -EAGAIN while the model loads
 *   engine_run(..., body: jobs_run(j, en, e))     jobs_submit, job_take, job_look, job_cancel, job_free
 *     returns after jobs_drain, when all is done  jobs_drain
 *   jobs_close(j)                                 (none by then)
 *
 * What a job gets depends on its request and the model alone, byte for byte: not on other jobs, their number,
 * the slot, what was there before, or when it was its turn (ARITHMETIC.md, rules 16 and 37).
 *
 * Whose turn it is:
 *  - The queue is first come, first served. A free slot takes the oldest job; of several free slots it gets the
 *    one where least is computed, now and probably later (place.h; --parallel slots, each with a context of its own).
 *  - Every step of the engine takes one token of every answering job (of one that is alone: its drafts too).
 *  - Prompts in work get the rest of the pass, evenly, what is over goes to the oldest. While others answer, the
 *    piece shrinks as long as such a step takes more than four times one without, and more than 100 ms; alone,
 *    prompts take whole passes, or smaller ones of a second where those are as good (turns.h).
 *  - Where a pass has less room than there are slots, those that were left out come first in the next.
 * With nothing to do the scheduler sleeps and is woken by a submission alone. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "coordinator/sample/sample.h"
#include "shm/err.h"

struct engine;
struct grammar;
struct jobs;
struct job;

enum { JOB_PROBS_MOST = 20, JOBS_SLOTS_MOST = 256 };
enum { JOBS_SAVED = 3 }; /* engine_options.n_saved: so many a slot, for recurrent models' prompts; 0: they are computed anew */

struct jobs_options {
    uint32_t n_slots;          /* engine_options.n_seqs must be the same */
    uint32_t queue_most;       /* jobs that wait at a time, at most */
    uint32_t drafts;           /* most drafts for a step; 0: none. The text is the same */
    int drafts_fixed;          /* 1: always so many; 0: as many as pay */
    /* Some job has news: tokens, another state, progress. From the scheduler's thread, once a step at most; or from
     * job_cancel's caller. Must not block and must not call into here: an eventfd's write. */
    void (*news)(void *arg);
    void *arg;
};
int jobs_open(const struct jobs_options *o, struct jobs **out, struct err *e);
/* Every job was freed, or is freed here. */
void jobs_close(struct jobs *j);
/* In engine_run's body, on its thread. 0 when drained; an error of the engine: every job ends with it. */
int jobs_run(struct jobs *j, struct engine *en, struct err *e);
/* No more submissions (-ESHUTDOWN); jobs_run returns when those accepted have ended. now: those are cancelled. */
void jobs_drain(struct jobs *j, int now);

struct job_request {           /* everything is copied */
    const uint32_t *ids;       /* the prompt, n_ids >= 1 */
    size_t n_ids;
    size_t max_tokens;         /* of the answer; SIZE_MAX: until the text or the context ends. 0: the prompt alone */
    struct sample_settings settings; /* sample_check'ed; the biases too are copied */
    const uint32_t *stop;      /* ids that end the answer, and are not given out */
    size_t n_stop;
    int ignore_eos;            /* 1: those ids are never chosen instead */
    struct grammar *grammar;   /* NULL: none; the job owns it from a successful jobs_submit on */
    int n_probs;               /* most likely tokens told with each token, 0 to JOB_PROBS_MOST; -1: no probabilities */
    int cache_prompt;          /* 1: a slot's front of the same ids is not computed again. The answer is the same */
};
/* Hands over *out, which job_free ends. Errors, with a message for the client: -EBUSY: the queue is full; -E2BIG: the
 * prompt does not fit (limit and length named); -EINVAL: an id, a setting; -EAGAIN: the model is still loading;
 * -ESHUTDOWN: draining; -ENOMEM. */
int jobs_submit(struct jobs *j, const struct job_request *r, struct job **out, struct err *e);

struct job_prob {
    uint32_t id;
    float logprob; /* ln of softmax over the model's own logits, without settings, biases, grammar */
};
struct job_token {
    uint32_t id;
    float logprob;             /* with n_probs >= 0; NaN without */
    uint64_t at_ns;            /* CLOCK_MONOTONIC */
    uint32_t n_top;            /* most likely first */
    struct job_prob top[JOB_PROBS_MOST];
};
/* The next tokens of the answer that were not taken yet; how many. Also after its end. */
size_t job_take(struct job *q, struct job_token *out, size_t most);

enum job_state { JOB_WAITING, JOB_PROMPT, JOB_ANSWER, JOB_DONE };
enum job_reason {
    JOB_NOT_DONE,
    JOB_STOP,      /* a stop id, or a grammar that allows no more */
    JOB_LENGTH,    /* max_tokens */
    JOB_CONTEXT,   /* the context is full: the text is whole up to there */
    JOB_CANCELLED,
    JOB_ERROR,     /* err says which */
};
struct job_timings { /* llama.cpp's names (spec/interface.md), then ours */
    size_t cache_n, prompt_n;  /* of the prompt: not computed again, computed */
    double prompt_ms;          /* from its start in a slot to the first token's row */
    size_t predicted_n;        /* tokens chosen, a stop id too */
    double predicted_ms;       /* from there to the last token */
    uint64_t draft_n, draft_n_accepted;
    double queue_ms;           /* before a slot took it */
    double wait_ms;            /* the trunk waited for experts; shared steps count by tokens, as all below */
    double items, card_items, disk_items; /* experts' works: all, on cards, not at hand */
    double bytes_read;
};
struct job_status {
    enum job_state state;
    enum job_reason reason;
    struct err err;
    int slot;                  /* -1: none yet */
    uint32_t stop_id;          /* with JOB_STOP: the id, UINT32_MAX: the grammar's end */
    size_t total, cached, processed; /* of the prompt; processed counts cached too */
    size_t n_tokens;           /* of the answer so far, taken or not */
    struct job_timings timings;
};
void job_look(struct job *q, struct job_status *s);
size_t job_ahead(struct job *q); /* jobs before it in the queue, counted */
uint64_t job_id(const struct job *q); /* numbers from 1, in the order of submission */

/* It is done at once (JOB_CANCELLED); its slot is free before the next step. A job that is done stays as it is. */
void job_cancel(struct job *q);
/* Cancels it if need be. q is gone. */
void job_free(struct job *q);

/* ---- numbers ---- */

struct jobs_slot {
    uint64_t job;              /* id of the job there; 0: free */
    enum job_state state;
    size_t n_past;             /* tokens whose rows are there */
    size_t n_prompt, n_tokens; /* of the job */
};
struct jobs_stats {
    int running;               /* the model is loaded */
    uint32_t n_slots, n_ctx;   /* n_ctx: of each */
    size_t waiting, busy;      /* jobs in the queue; slots in work */
    double wait_now_ms, wait_most_ms; /* of the oldest in the queue; of any job so far, before its slot */
    uint64_t submitted, refused, done, cancelled, failed;
    uint64_t prompt_tokens, cached_tokens, predicted_tokens;
    double prompt_s, predicted_s; /* sums of the jobs' times */
    uint64_t steps, busy_slots;   /* steps of the engine; slots in them, summed */
    uint64_t drafts, draft_tokens, draft_accepted; /* steps with drafts; tokens */
    size_t tokens_most;        /* in a slot so far */
};
/* slot: NULL, or room for most. */
void jobs_stats(struct jobs *j, struct jobs_stats *s, struct jobs_slot *slot, size_t most);
