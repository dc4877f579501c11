/* What jobs.c (any thread) and schedule.c (the engine's) share. Fields without a note belong to the lock; the
 * scheduler's own are written by its thread alone, and what others may know of them is told under the lock once a
 * step. The lock is never held during a step. */
#pragma once
#include <pthread.h>

#include "coordinator/draft/decode.h"
#include "coordinator/serve/jobs.h"
#include "coordinator/serve/kept_states.h"
#include "coordinator/serve/turns.h"

struct given { /* a token of an answer */
    uint32_t id;
    float logprob;
    uint64_t at_ns;
};

struct job {
    struct jobs *j;
    uint64_t id;
    struct job *before, *after; /* in the list of all */
    struct job *next;           /* in the queue */
    /* the request, constant from submission on */
    uint32_t *ids;
    size_t n_ids, max_tokens;
    struct sample_settings settings;
    struct sample_bias *bias;
    uint32_t *stop;
    size_t n_stop;
    struct grammar *grammar; /* owned; its place is the scheduler's */
    int n_probs, cache_prompt;

    struct job_status is; /* times are added when it ends; job_look adds what is running */
    int in_slot;          /* the scheduler works on it: it is freed by the scheduler */
    int freed;            /* its owner has left */
    uint64_t submitted_ns, started_ns, first_ns, last_ns;
    struct given *given;  /* is.n_tokens */
    struct job_prob *top; /* is.n_tokens * n_probs */
    size_t cap, taken;
};

struct slot { /* the scheduler's, but what is told */
    struct job *job;
    struct decode d;
    uint32_t *ids;      /* engine_n_ctx */
    size_t n_rows;      /* tokens of ids whose rows the engine has, of a job that has gone */
    struct kept_states kept;
    int restore;        /* index of the state that the job goes on from; -1: none, or it is done */
    size_t came_with;   /* tokens that were there when the job began */
    uint64_t used;      /* when a job began there */
    int leaves;         /* its job has ended */
    int in_step;        /* it has tokens in the step that is made */
    int prompt;         /* of the prompt */
    enum job_reason end; /* why nothing comes after the last token */
    uint32_t stop_id;
    struct jobs_slot told; /* the lock's */
};

struct jobs {
    struct jobs_options o;
    pthread_mutex_t lock;
    pthread_cond_t wake; /* the scheduler sleeps: a submission, a drain */
    struct job *all, *first, *last; /* every job; the queue */
    size_t n_waiting;
    uint64_t last_id;
    int draining, over; /* no submissions any more; jobs_run has returned */
    struct jobs_stats count;
    uint32_t n_vocab, n_ctx; /* constant once count.running is set */

    /* the scheduler's */
    struct engine *en;
    struct slot *slot;
    struct sample_scratch scratch;
    struct draft_pays pays;
    struct turns turns;
    struct step_token *token; /* of a pass */
    uint32_t *out, *share;
    struct slot **prompts;    /* of the step, oldest first */
    size_t *left;
    uint32_t turn;            /* the slot that comes first */
    uint64_t uses;
};

/* With the lock. The job is done; its owner may free it when the scheduler is not at it. */
void job_end(struct job *q, enum job_reason why, const struct err *e);
/* With the lock: out of the list of all, and its memory. */
void job_drop(struct job *q);
/* Times and counts as they are now, with the lock. */
void job_times(const struct job *q, struct job_timings *t);
