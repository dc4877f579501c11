/* The callers' side: whatever thread, under one lock that is held for moments. */
#include "coordinator/serve/jobs.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/serve/jobs_inside.h"
#include "shm/bell.h" /* now_ns */

int jobs_open(const struct jobs_options *o, struct jobs **out, struct err *e)
{
    struct jobs *j = calloc(1, sizeof *j);

    if (!j)
        return err_set(e, -ENOMEM, "no memory for the queue");
    j->o = *o;
    j->count.n_slots = o->n_slots;
    pthread_mutex_init(&j->lock, NULL);
    pthread_cond_init(&j->wake, NULL);
    *out = j;
    return 0;
}

void jobs_close(struct jobs *j)
{
    if (!j)
        return;
    while (j->all)
        job_drop(j->all);
    pthread_cond_destroy(&j->wake);
    pthread_mutex_destroy(&j->lock);
    free(j);
}

static void news(struct jobs *j)
{
    if (j->o.news)
        j->o.news(j->o.arg);
}

/* ---- submission ---- */

static int check(const struct jobs *j, const struct job_request *r, struct err *e)
{
    int rc = sample_check(&r->settings, e);

    if (rc)
        return rc;
    if (!r->n_ids)
        return err_set(e, -EINVAL, "the prompt is empty");
    for (size_t i = 0; i < r->n_ids; i++)
        if (r->ids[i] >= j->n_vocab)
            return err_set(e, -EINVAL, "token %zu of the prompt is %u, but the vocabulary has %u", i, r->ids[i], j->n_vocab);
    for (size_t i = 0; i < r->settings.n_bias; i++)
        if (r->settings.bias[i].token >= j->n_vocab)
            return err_set(e, -EINVAL, "a bias is for token %u, but the vocabulary has %u", r->settings.bias[i].token,
                           j->n_vocab);
    if (r->n_probs < -1 || r->n_probs > JOB_PROBS_MOST)
        return err_set(e, -EINVAL, "%d most likely tokens are asked for, at most %d are told", r->n_probs, JOB_PROBS_MOST);
    if (r->n_ids >= j->n_ctx)
        return err_set(e, -E2BIG, "the prompt has %zu tokens, but the context has %u, one of them for an answer (-c)", r->n_ids,
                       j->n_ctx);
    return 0;
}

static void *copy(const void *from, size_t n, size_t each)
{
    void *to = malloc(n * each + 1);

    if (to && n)
        memcpy(to, from, n * each);
    return to;
}

static void job_clear(struct job *q)
{
    free(q->ids);
    free(q->bias);
    free(q->stop);
    grammar_close(q->grammar);
    free(q->given);
    free(q->top);
    free(q);
}

static struct job *job_of(struct jobs *j, const struct job_request *r)
{
    struct job *q = calloc(1, sizeof *q);
    size_t n = r->settings.n_bias;

    if (!q)
        return NULL;
    q->j = j;
    q->n_ids = q->is.total = r->n_ids;
    q->max_tokens = r->max_tokens;
    q->settings = r->settings;
    q->n_probs = r->n_probs;
    q->cache_prompt = r->cache_prompt;
    q->is.slot = -1;
    q->ids = copy(r->ids, r->n_ids, sizeof *q->ids);
    q->bias = malloc((n + r->n_stop + 1) * sizeof *q->bias);
    q->stop = copy(r->stop, r->n_stop, sizeof *q->stop);
    if (!q->ids || !q->bias || !q->stop) {
        job_clear(q);
        return NULL;
    }
    if (n)
        memcpy(q->bias, r->settings.bias, n * sizeof *q->bias);
    for (size_t i = 0; r->ignore_eos && i < r->n_stop; i++)
        q->bias[n++] = (struct sample_bias){r->stop[i], -INFINITY};
    q->settings.bias = q->bias;
    q->settings.n_bias = n;
    q->n_stop = r->ignore_eos ? 0 : r->n_stop;
    q->grammar = r->grammar; /* nothing fails from here on */
    return q;
}

/* With the lock: may it come in? */
static int admit(const struct jobs *j, const struct job_request *r, struct err *e)
{
    if (j->draining || j->over)
        return err_set(e, -ESHUTDOWN, "the server is ending");
    if (!j->count.running)
        return err_set(e, -EAGAIN, "the model is still loading");
    if (j->n_waiting >= j->o.queue_most)
        return err_set(e, -EBUSY, "%zu requests wait already", j->n_waiting);
    return check(j, r, e);
}

int jobs_submit(struct jobs *j, const struct job_request *r, struct job **out, struct err *e)
{
    struct job *q;
    int rc;

    pthread_mutex_lock(&j->lock);
    rc = admit(j, r, e);
    q = rc ? NULL : job_of(j, r);
    if (!rc && !q)
        rc = err_set(e, -ENOMEM, "no memory for the request");
    if (rc) {
        j->count.refused++;
        pthread_mutex_unlock(&j->lock);
        return rc;
    }
    q->id = ++j->last_id;
    q->submitted_ns = now_ns();
    q->after = j->all;
    if (j->all)
        j->all->before = q;
    j->all = q;
    *(j->first ? &j->last->next : &j->first) = q;
    j->last = q;
    j->n_waiting++;
    j->count.submitted++;
    *out = q;
    pthread_cond_signal(&j->wake);
    pthread_mutex_unlock(&j->lock);
    return 0;
}

/* ---- a job's end ---- */

static void unqueue(struct jobs *j, struct job *q)
{
    struct job **at = &j->first, *last = NULL;

    for (; *at && *at != q; at = &(*at)->next)
        last = *at;
    if (!*at)
        return;
    *at = q->next;
    if (j->last == q)
        j->last = last;
    q->next = NULL;
    j->n_waiting--;
}

void job_end(struct job *q, enum job_reason why, const struct err *e)
{
    struct jobs_stats *c = &q->j->count;

    if (q->is.state == JOB_DONE)
        return;
    if (q->is.state == JOB_WAITING)
        unqueue(q->j, q);
    job_times(q, &q->is.timings);
    q->is.state = JOB_DONE;
    q->is.reason = why;
    if (e)
        q->is.err = *e;
    c->done++;
    c->cancelled += why == JOB_CANCELLED;
    c->failed += why == JOB_ERROR;
    c->prompt_s += q->is.timings.prompt_ms * 1e-3;
    c->predicted_s += q->is.timings.predicted_ms * 1e-3;
}

void job_drop(struct job *q)
{
    if (q->before)
        q->before->after = q->after;
    else
        q->j->all = q->after;
    if (q->after)
        q->after->before = q->before;
    job_clear(q);
}

void job_cancel(struct job *q)
{
    struct jobs *j = q->j;
    int ends;

    pthread_mutex_lock(&j->lock);
    ends = q->is.state != JOB_DONE;
    job_end(q, JOB_CANCELLED, NULL);
    pthread_mutex_unlock(&j->lock);
    if (ends)
        news(j);
}

void job_free(struct job *q)
{
    struct jobs *j;

    if (!q)
        return;
    j = q->j;
    pthread_mutex_lock(&j->lock);
    job_end(q, JOB_CANCELLED, NULL);
    q->freed = 1;
    if (!q->in_slot)
        job_drop(q);
    pthread_mutex_unlock(&j->lock);
}

void jobs_drain(struct jobs *j, int now)
{
    pthread_mutex_lock(&j->lock);
    j->draining = 1;
    for (struct job *q = j->all; now && q; q = q->after)
        job_end(q, JOB_CANCELLED, NULL);
    pthread_cond_signal(&j->wake);
    pthread_mutex_unlock(&j->lock);
    if (now)
        news(j);
}

/* ---- looking ---- */

uint64_t job_id(const struct job *q)
{
    return q->id;
}

size_t job_take(struct job *q, struct job_token *out, size_t most)
{
    size_t n = 0, probs = q->n_probs > 0 ? (size_t)q->n_probs : 0;

    pthread_mutex_lock(&q->j->lock);
    for (; n < most && q->taken < q->is.n_tokens; n++, q->taken++) {
        const struct given *g = &q->given[q->taken];
        out[n] = (struct job_token){.id = g->id, .logprob = g->logprob, .at_ns = g->at_ns, .n_top = (uint32_t)probs};
        if (probs)
            memcpy(out[n].top, q->top + q->taken * probs, probs * sizeof *q->top);
    }
    pthread_mutex_unlock(&q->j->lock);
    return n;
}

static double ms(uint64_t from, uint64_t to)
{
    return from && to > from ? 1e-6 * (double)(to - from) : 0;
}

void job_times(const struct job *q, struct job_timings *t)
{
    uint64_t now = now_ns();

    *t = q->is.timings;
    if (q->is.state == JOB_DONE)
        return;
    t->queue_ms = ms(q->submitted_ns, q->started_ns ? q->started_ns : now);
    t->cache_n = q->is.cached;
    t->prompt_n = q->is.processed - q->is.cached;
    t->prompt_ms = ms(q->started_ns, q->first_ns ? q->first_ns : now);
    t->predicted_ms = ms(q->first_ns, q->last_ns);
}

void job_look(struct job *q, struct job_status *s)
{
    pthread_mutex_lock(&q->j->lock);
    *s = q->is;
    job_times(q, &s->timings);
    pthread_mutex_unlock(&q->j->lock);
}

size_t job_ahead(struct job *q)
{
    size_t n = 0;

    pthread_mutex_lock(&q->j->lock);
    for (const struct job *x = q->is.state == JOB_WAITING ? q->j->first : NULL; x && x != q; x = x->next)
        n++;
    pthread_mutex_unlock(&q->j->lock);
    return n;
}

void jobs_stats(struct jobs *j, struct jobs_stats *s, struct jobs_slot *slot, size_t most)
{
    pthread_mutex_lock(&j->lock);
    *s = j->count;
    s->waiting = j->n_waiting;
    s->wait_now_ms = j->first ? ms(j->first->submitted_ns, now_ns()) : 0;
    for (size_t i = 0; slot && i < most; i++)
        slot[i] = (struct jobs_slot){0};
    for (uint32_t i = 0; j->slot && i < j->o.n_slots; i++) {
        s->busy += j->slot[i].told.job != 0;
        if (slot && i < most)
            slot[i] = j->slot[i].told;
    }
    pthread_mutex_unlock(&j->lock);
}
