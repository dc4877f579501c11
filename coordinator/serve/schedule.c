/* The engine's side: slots, steps, tokens. One thread, the leader of the trunk's team; it takes the lock for moments,
 * never for a step. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/engine.h"
#include "coordinator/serve/jobs_inside.h"
#include "coordinator/serve/place.h"
#include "kernels/logprob/logprob.h"
#include "kernels/topk/topk.h"
#include "shm/bell.h" /* now_ns */

/* ---- one token of a job ---- */

static int is_stop(const struct job *q, uint32_t id)
{
    for (size_t i = 0; i < q->n_stop; i++)
        if (q->stop[i] == id)
            return 1;
    return 0;
}

/* With the lock: room for one more. */
static int room(struct job *q)
{
    size_t cap = q->cap ? 2 * q->cap : 64, probs = q->n_probs > 0 ? (size_t)q->n_probs : 0;
    struct given *g;
    struct job_prob *t;

    if (q->is.n_tokens < q->cap)
        return 0;
    g = realloc(q->given, cap * sizeof *g);
    if (!g)
        return -ENOMEM;
    q->given = g;
    t = probs ? realloc(q->top, cap * probs * sizeof *t) : NULL;
    if (probs && !t)
        return -ENOMEM;
    q->top = probs ? t : NULL;
    q->cap = cap;
    return 0;
}

/* Rule 34, of the row as it is. */
static void probabilities(const float *row, uint32_t n_vocab, uint32_t id, int n, float *own, struct job_prob *top)
{
    uint32_t first[JOB_PROBS_MOST];
    float m;
    double sum = logprob_sum(row, n_vocab, &m);

    *own = (float)logprob_of(row[id], sum, m);
    if (n > 0)
        order_topk(row, n_vocab, (uint32_t)n, first);
    for (int i = 0; i < n; i++)
        top[i] = (struct job_prob){first[i], (float)logprob_of(row[first[i]], sum, m)};
}

/* decode's chosen(): 1: the answer ends here. */
static int chosen(void *arg, uint32_t id, const float *row, struct err *e)
{
    struct slot *s = arg;
    struct job *q = s->job;
    struct jobs *j = q->j;
    struct job_prob top[JOB_PROBS_MOST];
    float own = NAN;
    int rc = 0, stop = is_stop(q, id);

    if (q->n_probs >= 0 && !stop)
        probabilities(row, j->n_vocab, id, q->n_probs, &own, top);
    pthread_mutex_lock(&j->lock);
    if (q->is.state == JOB_DONE) { /* cancelled meanwhile */
        pthread_mutex_unlock(&j->lock);
        return 1;
    }
    q->last_ns = now_ns();
    q->is.timings.predicted_n++;
    j->count.predicted_tokens++;
    if (stop) {
        s->end = JOB_STOP;
        s->stop_id = id;
    } else if (!room(q)) {
        q->given[q->is.n_tokens] = (struct given){id, own, q->last_ns};
        if (q->n_probs > 0)
            memcpy(q->top + q->is.n_tokens * (size_t)q->n_probs, top, (size_t)q->n_probs * sizeof *top);
        q->is.n_tokens++;
        if (q->grammar && grammar_ended(q->grammar)) {
            s->end = JOB_STOP;
            s->stop_id = UINT32_MAX;
        } else if (q->is.n_tokens >= q->max_tokens) {
            s->end = JOB_LENGTH;
        } else if (s->d.n == j->n_ctx) {
            s->end = JOB_CONTEXT;
        }
    } else {
        rc = err_set(e, -ENOMEM, "no memory for the answer");
    }
    pthread_mutex_unlock(&j->lock);
    return rc ? rc : s->end != JOB_NOT_DONE;
}

/* ---- a job comes to a slot, and leaves it ---- */

static size_t common(const struct slot *s, const struct job *q)
{
    size_t n = 0;

    while (n < s->n_rows && n < q->n_ids && s->ids[n] == q->ids[n])
        n++;
    return n;
}

/* What of a slot a job need not compute again; *state: from which saved state, -1: rows alone do. */
static size_t front_of(struct jobs *j, const struct slot *s, const struct job *q, int *state)
{
    size_t n = q->cache_prompt ? common(s, q) : 0;

    *state = -1;
    if (n == q->n_ids)
        n--; /* the last one's row of logits is wanted */
    if (!engine_saved_bytes(j->en))
        return n;
    *state = kept_states_best(&s->kept, n);
    return *state < 0 ? 0 : s->kept.pos[*state];
}

/* The best free slot. NULL: none is free. */
static struct slot *slot_for(struct jobs *j, const struct job *q)
{
    struct slot *best = NULL;
    double least = 0;

    for (struct slot *s = j->slot; s < j->slot + j->o.n_slots; s++) {
        struct place p = {.age = j->uses - s->used};
        double cost;
        int state;
        if (s->job)
            continue;
        p.front = front_of(j, s, q, &state);
        p.lost = s->n_rows - (q->cache_prompt ? common(s, q) : 0);
        cost = place_cost(&p, q->n_ids, j->o.n_slots);
        if (best && cost >= least)
            continue;
        best = s;
        least = cost;
    }
    return best;
}

/* With the lock. */
static void begin(struct jobs *j, struct slot *s, struct job *q)
{
    size_t stands = common(s, q), front = front_of(j, s, q, &s->restore);
    struct decode_options o = {.seq = (uint32_t)(s - j->slot),
                               .drafts = j->o.drafts,
                               .fixed = j->o.drafts_fixed,
                               .kept = front,
                               .pays = &j->pays,
                               .scratch = &j->scratch,
                               .grammar = q->grammar,
                               .rows = q->n_probs >= 0,
                               .chosen = chosen,
                               .arg = s};

    memcpy(s->ids, q->ids, q->n_ids * sizeof *q->ids);
    decode_begin(&s->d, &q->settings, o, s->ids, q->n_ids);
    kept_states_begin(&s->kept, stands, front, q->n_ids);
    s->job = q;
    s->n_rows = 0;
    s->came_with = s->d.fed;
    s->used = ++j->uses;
    s->end = JOB_NOT_DONE;
    q->in_slot = 1;
    q->started_ns = now_ns();
    q->is.state = JOB_PROMPT;
    q->is.slot = (int)o.seq;
    q->is.cached = q->is.processed = s->d.fed;
    q->is.timings.queue_ms = 1e-6 * (double)(q->started_ns - q->submitted_ns);
    if (j->count.wait_most_ms < q->is.timings.queue_ms)
        j->count.wait_most_ms = q->is.timings.queue_ms;
    j->count.cached_tokens += q->is.cached;
}

/* With the lock: the slot's job has ended, or was ended. */
static void leave(struct slot *s)
{
    struct job *q = s->job;

    s->n_rows = s->d.fed;
    s->job = NULL;
    q->in_slot = 0;
    if (q->freed)
        job_drop(q);
}

/* With the lock. */
static void tell(struct jobs *j, struct slot *s)
{
    const struct job *q = s->job;

    s->told = (struct jobs_slot){.n_past = q ? s->d.fed : s->n_rows};
    if (j->count.tokens_most < s->told.n_past)
        j->count.tokens_most = s->told.n_past;
    if (!q)
        return;
    s->told.job = q->id;
    s->told.state = q->is.state;
    s->told.n_prompt = q->n_ids;
    s->told.n_tokens = q->is.n_tokens;
}

/* States that later jobs may go on from: between steps, without the lock, for they may be large. */
static void save(struct jobs *j, struct slot *s, enum kept_state which)
{
    uint32_t slot = (uint32_t)(s - j->slot);

    if (engine_n_saved(j->en) < j->o.n_slots * JOBS_SAVED || !engine_saved_bytes(j->en))
        return;
    engine_save(j->en, slot, (uint32_t)s->d.fed, slot * JOBS_SAVED + which);
    s->kept.pos[which] = s->d.fed;
}

static void save_ends(struct jobs *j)
{
    for (struct slot *s = j->slot; s < j->slot + j->o.n_slots; s++) {
        int ended;
        if (!s->job)
            continue;
        pthread_mutex_lock(&j->lock);
        ended = s->job->is.state == JOB_DONE;
        pthread_mutex_unlock(&j->lock);
        if (ended && s->restore < 0 && s->d.fed > s->came_with) /* it had a step */
            save(j, s, KEPT_END);
        s->leaves = ended;
    }
}

/* Slots are freed and filled. Returns how many are busy; sleeps while there are none. 0: drained. */
static uint32_t turn_over(struct jobs *j)
{
    uint32_t busy;
    int shown = 0;

    save_ends(j);
    pthread_mutex_lock(&j->lock);
    for (;;) {
        struct slot *s;

        for (s = j->slot; s < j->slot + j->o.n_slots; s++)
            if (s->job && s->leaves)
                leave(s);
        while (j->first && (s = slot_for(j, j->first))) {
            struct job *q = j->first;
            j->first = q->next;
            q->next = NULL;
            j->n_waiting--;
            begin(j, s, q);
        }
        busy = 0;
        for (s = j->slot; s < j->slot + j->o.n_slots; s++) {
            busy += s->job != NULL;
            tell(j, s);
        }
        if (busy || j->draining)
            break;
        if (!shown) { /* a rest: figures of what was computed last */
            pthread_mutex_unlock(&j->lock);
            engine_show(j->en);
            pthread_mutex_lock(&j->lock);
            shown = 1;
            continue;
        }
        pthread_cond_wait(&j->wake, &j->lock);
    }
    pthread_mutex_unlock(&j->lock);
    return busy;
}

/* ---- a step ---- */

/* Slots in turn, from j->turn on. */
static struct slot *in_turn(struct jobs *j, uint32_t i)
{
    return &j->slot[(j->turn + i) % j->o.n_slots];
}

/* Tokens of the step that answers may have: where a pass is too small for all, prompts keep a part of it. */
static uint32_t answers_most(const struct jobs *j, uint32_t n_prompts)
{
    uint32_t most = engine_max_tokens(j->en);

    if (!n_prompts)
        return most;
    return most > 1 ? most - (most / 2 < TURNS_PIECE_LEAST ? most / 2 : TURNS_PIECE_LEAST) : (uint32_t)(j->count.steps & 1);
}

static void put_answers(struct jobs *j, struct decode_pass *p, uint32_t most, uint32_t drafts)
{
    uint32_t left_out = UINT32_MAX;

    for (uint32_t i = 0; i < j->o.n_slots; i++) {
        struct slot *s = in_turn(j, i);
        if (!s->job || decode_prompt_left(&s->d))
            continue;
        if (p->n + 1 + drafts > most || p->n_out + 1 + drafts > engine_max_out(j->en)) {
            left_out = left_out == UINT32_MAX ? (uint32_t)(s - j->slot) : left_out;
            continue;
        }
        decode_put(&s->d, p, 1, drafts);
        s->in_step = 1;
    }
    if (left_out != UINT32_MAX)
        j->turn = left_out;
}

/* Returns the tokens of prompts in the step. */
static uint32_t put_prompts(struct jobs *j, struct decode_pass *p, uint32_t n)
{
    uint32_t before = p->n;

    for (uint32_t i = 0; i < n; i++)
        j->left[i] = decode_prompt_left(&j->prompts[i]->d);
    turns_share(turns_piece(&j->turns, p->n), j->left, n, j->share);
    for (uint32_t i = 0; i < n; i++) {
        struct slot *s = j->prompts[i];
        uint32_t k = j->share[i];
        if (k == j->left[i] && p->n_out == engine_max_out(j->en)) /* no row for its last token */
            k--;
        k = kept_states_before(&s->kept, s->d.fed, k);
        if (!k)
            continue;
        if (s->restore >= 0)
            engine_restore(j->en, (uint32_t)(s - j->slot) * JOBS_SAVED + (uint32_t)s->restore);
        s->restore = -1;
        decode_put(&s->d, p, k, 0);
        s->in_step = s->prompt = 1;
    }
    return p->n - before;
}

/* Slots whose prompts are in work, oldest job first. */
static uint32_t find_prompts(struct jobs *j)
{
    uint32_t n = 0;

    for (struct slot *s = j->slot; s < j->slot + j->o.n_slots; s++) {
        uint32_t at = n;
        s->in_step = s->prompt = 0;
        if (!s->job || !decode_prompt_left(&s->d))
            continue;
        for (; at && j->prompts[at - 1]->job->id > s->job->id; at--)
            j->prompts[at] = j->prompts[at - 1];
        j->prompts[at] = s;
        n++;
    }
    return n;
}

/* The step's rows: tokens. */
static int take(struct jobs *j, struct slot *s, const float *logits, double seconds, int alone, struct err *e)
{
    int rc = decode_take(&s->d, logits, seconds, alone, e);
    enum kept_state which;

    if (s->prompt && kept_states_at(&s->kept, s->d.fed, &which))
        save(j, s, which);
    if (rc || !decode_waits(&s->d))
        return rc;
    if (!s->job->max_tokens) {
        s->end = JOB_LENGTH;
        return 0;
    }
    return decode_first(&s->d, alone, e);
}

/* With the lock: what a shared step cost, by tokens. */
static void share_cost(struct job *q, const struct engine_count *a, const struct engine_count *b, double part)
{
    struct job_timings *t = &q->is.timings;

    t->wait_ms += 1e-6 * (double)(b->wait_ns - a->wait_ns) * part;
    t->items += (double)(b->items - a->items) * part;
    t->card_items += (double)(b->card_items - a->card_items) * part;
    t->disk_items += (double)(b->disk_items - a->disk_items) * part;
    t->bytes_read += (double)(b->bytes_read - a->bytes_read) * part;
}

static void sum_drafts(struct jobs *j, struct slot *s)
{
    struct job_timings *t = &s->job->is.timings;
    uint64_t drafted = 0, right = 0;

    for (int i = 0; i < DRAFT_PLACES; i++) {
        drafted += s->d.count.drafted[i];
        right += s->d.count.right[i];
    }
    j->count.drafts += drafted > t->draft_n;
    j->count.draft_tokens += drafted - t->draft_n;
    j->count.draft_accepted += right - t->draft_n_accepted;
    t->draft_n = drafted;
    t->draft_n_accepted = right;
}

/* After a step in which the slot had n tokens. */
static void settle(struct jobs *j, struct slot *s, const struct engine_count *a, const struct engine_count *b, uint32_t n,
                   double part, int rc, const struct err *e)
{
    struct job *q = s->job;

    pthread_mutex_lock(&j->lock);
    if (q->is.state != JOB_DONE) {
        share_cost(q, a, b, part);
        if (s->prompt) {
            q->is.processed += n;
            j->count.prompt_tokens += n;
        }
        if (s->prompt && !decode_prompt_left(&s->d)) {
            q->first_ns = now_ns();
            q->is.state = JOB_ANSWER;
        }
        sum_drafts(j, s);
        q->is.stop_id = s->stop_id;
        if (rc)
            job_end(q, JOB_ERROR, e);
        else if (s->end)
            job_end(q, s->end, NULL);
    }
    pthread_mutex_unlock(&j->lock);
}

static void step(struct jobs *j, uint32_t busy)
{
    struct decode_pass p = {.token = j->token, .out = j->out, .best_only = 1};
    struct engine_count before, after;
    uint32_t n_prompts = find_prompts(j), prompt_tokens, answering, in_step = 0;
    uint64_t start = now_ns();
    const float *logits;
    double seconds;

    put_answers(j, &p, answers_most(j, n_prompts), busy == 1 ? decode_most_drafts(j->en, j->o.drafts) : 0);
    answering = p.n;
    prompt_tokens = put_prompts(j, &p, n_prompts);
    engine_counts(j->en, &before);
    struct step s = {.n_tokens = p.n, .n_out = p.n_out, .token = p.token, .out = p.out, .best_only = p.best_only};
    logits = engine_step(j->en, &s);
    seconds = (double)(now_ns() - start) * 1e-9;
    engine_counts(j->en, &after);
    turns_note(&j->turns, answering, prompt_tokens, seconds);
    for (struct slot *t = j->slot; t < j->slot + j->o.n_slots; t++) {
        struct err e = {0};
        uint32_t n = t->d.put;
        int rc;
        if (!t->in_step)
            continue;
        rc = take(j, t, logits, seconds, busy == 1, &e);
        settle(j, t, &before, &after, n, (double)n / p.n, rc, &e);
        in_step++;
    }
    pthread_mutex_lock(&j->lock);
    j->count.steps++;
    j->count.busy_slots += in_step;
    pthread_mutex_unlock(&j->lock);
    if (j->o.news)
        j->o.news(j->o.arg);
}

/* ---- the whole ---- */

static int slots_open(struct jobs *j, struct err *e)
{
    static const struct sample_settings none;
    uint32_t most = engine_max_tokens(j->en), n = j->o.n_slots;
    struct decode_options o = {.pays = &j->pays, .scratch = &j->scratch};
    int rc = sample_scratch_init(&j->scratch, engine_model(j->en)->n_vocab, e);

    if (rc)
        return rc;
    draft_pays_init(&j->pays, decode_most_drafts(j->en, j->o.drafts));
    turns_init(&j->turns, most);
    j->slot = calloc(n, sizeof *j->slot);
    j->token = malloc(most * sizeof *j->token);
    j->out = malloc(most * sizeof *j->out);
    j->share = malloc(n * sizeof *j->share);
    j->prompts = malloc(n * sizeof *j->prompts);
    j->left = malloc(n * sizeof *j->left);
    if (!j->slot || !j->token || !j->out || !j->share || !j->prompts || !j->left)
        return err_set(e, -ENOMEM, "no memory for %u slots", n);
    for (struct slot *s = j->slot; s < j->slot + n; s++) {
        s->ids = malloc((size_t)engine_n_ctx(j->en) * sizeof *s->ids);
        if (!s->ids)
            return err_set(e, -ENOMEM, "no memory for %u tokens", engine_n_ctx(j->en));
        if ((rc = decode_open(&s->d, j->en, &none, o, s->ids, 0, e)))
            return rc;
    }
    return 0;
}

static void slots_close(struct jobs *j)
{
    for (uint32_t i = 0; j->slot && i < j->o.n_slots; i++) {
        decode_close(&j->slot[i].d);
        free(j->slot[i].ids);
    }
    sample_scratch_free(&j->scratch);
    free(j->slot);
    free(j->token);
    free(j->out);
    free(j->share);
    free(j->prompts);
    free(j->left);
    j->slot = NULL;
}

int jobs_run(struct jobs *j, struct engine *en, struct err *e)
{
    uint32_t busy;
    int rc;

    j->en = en;
    pthread_mutex_lock(&j->lock);
    rc = slots_open(j, e);
    j->n_vocab = engine_model(en)->n_vocab;
    j->n_ctx = j->count.n_ctx = engine_n_ctx(en);
    j->count.running = !rc;
    pthread_mutex_unlock(&j->lock);
    while (!rc && (busy = turn_over(j)))
        step(j, busy);
    pthread_mutex_lock(&j->lock);
    j->over = 1;
    j->count.running = 0;
    for (struct job *q = rc ? j->all : NULL; q; q = q->after)
        job_end(q, JOB_ERROR, e);
    slots_close(j);
    pthread_mutex_unlock(&j->lock);
    if (j->o.news)
        j->o.news(j->o.arg);
    return rc;
}
