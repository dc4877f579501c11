/* Calls from arrival to end: who holds what, and when it goes. Nothing here waits.
 *
 *   HTTP thread                         reading thread                    scheduler's thread
 *   arrive -> queue
 *                                       read -> http_post(prepared)
 *   prepared: submit, begin the stream
 *                                                                         api_news: eventfd
 *   on_news: take tokens, write
 *   all over: end
 *
 * A client that goes cancels its jobs at once; its call is freed then, or, while it is being read, when it
 * comes back. */
#define _GNU_SOURCE
#include "coordinator/serve/api/api.h"

#include <errno.h>
#include <event2/buffer.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "coordinator/serve/api/call.h"
#include "coordinator/serve/api/inside.h"
#include "coordinator/serve/log.h"

enum { TAKE = 16, NEWS_US = 1000 };

const struct served *api_served(const struct api *a)
{
    return a->served;
}

const char *api_fingerprint(const struct api *a)
{
    return a->fingerprint;
}

/* ---- the end of a call ---- */

static void close_jobs(struct call *c)
{
    for (size_t i = 0; i < c->n_choices; i++) {
        if (c->choice[i].job)
            job_free(c->choice[i].job);
        c->choice[i].job = NULL;
    }
}

static void call_free(struct call *c)
{
    close_jobs(c);
    for (size_t i = 0; i < c->n_choices; i++)
        turn_close(&c->choice[i].turn);
    if (c->at) {
        *c->at = c->next;
        if (c->next)
            c->next->at = c->at;
    }
    if (c->body)
        evbuffer_free(c->body);
    free(c->choice);
    free(c->reply);
    request_free(&c->r);
    free(c);
}

static void on_gone(void *arg)
{
    struct call *c = arg;

    log_line(LOG_INFO, "%s %s: the client has gone", exchange_id(c->x), exchange_path(c->x));
    c->x = NULL;
    if (c->reading)
        return; /* it comes back */
    call_free(c);
}

void reply_fault(struct exchange *x, const struct fault *f)
{
    char text[FAULT_TEXT];
    size_t n = fault_text(f, fault_style(exchange_path(x)), exchange_id(x), text);

    if (f->status == 503 || f->status == 429)
        exchange_header_out(x, "Retry-After", "1");
    log_line(LOG_DEBUG, "%s refused: %s", exchange_id(x), f->message);
    exchange_reply(x, f->status, "application/json", text, n);
}

/* Before the first byte of a stream as a status, later as an event: a cut socket would be tried again. */
static void fail(struct call *c)
{
    struct exchange *x = c->x;
    char text[FAULT_TEXT + 64];
    size_t n;

    if (!c->streaming) {
        reply_fault(x, &c->fault); /* gone is not called any more */
        call_free(c);
        return;
    }
    if (c->forms->fault == FAULT_ANTHROPIC)
        exchange_send_more(x, "event: error\n", 13);
    exchange_send_more(x, "data: ", 6);
    n = fault_text(&c->fault, c->forms->fault, exchange_id(x), text);
    exchange_send_more(x, text, n);
    exchange_send(x, "\n\n", 2);
    call_free(c);
    exchange_end(x);
}

/* ---- answers ---- */

static void finish_of(struct choice *h)
{
    const struct turn *t = &h->turn;

    if (t->answer && answer_n_calls(t->answer) > 0 && h->status.reason != JOB_LENGTH && h->status.reason != JOB_CONTEXT)
        h->finish = FINISH_TOOLS;
    else if (t->word >= 0)
        h->finish = FINISH_WORD;
    else if (h->status.reason == JOB_LENGTH || h->status.reason == JOB_CONTEXT)
        h->finish = FINISH_LENGTH;
    else
        h->finish = FINISH_STOP;
}

/* What a grammar says is the client's; the engine's own troubles name files, which are not. */
static int job_fault(struct call *c, const struct err *e)
{
    if (!strncmp(e->msg, "the grammar ", 12))
        return fault_set(&c->fault, 400, "grammar", "%s", e->msg);
    log_line(LOG_DEBUG, "%s: %s", exchange_id(c->x), e->msg);
    return fault_set(&c->fault, 500, NULL, "the engine cannot go on; the server's log says why");
}

/* Tokens that came, into text. 1: the answer is complete; 2: by its text, whatever the job has done meanwhile; < 0: an
 * error, in c->fault. */
static int take(struct call *c, struct choice *h)
{
    struct job_token token[TAKE];
    struct err e = {0};
    size_t n;

    job_look(h->job, &h->status); /* first: if it is done now, what is taken then is all */
    while (h->turn.word < 0 && (n = job_take(h->job, token, TAKE))) {
        c->api->taken += n;
        for (size_t i = 0; i < n && h->turn.word < 0; i++) {
            int rc = turn_push(&h->turn, &token[i], &e);

            if (rc < 0)
                return fault_set(&c->fault, 500, NULL, "%s", e.msg), -1;
            if (c->r.one_call && h->turn.answer && answer_n_calls(h->turn.answer)) {
                return 2;
            }
        }
    }
    if (h->turn.word >= 0)
        return 2;
    if (h->status.state != JOB_DONE)
        return 0;
    if (c->late && h->status.reason == JOB_CANCELLED)
        h->status.reason = JOB_LENGTH;
    if (h->status.reason == JOB_CANCELLED)
        return fault_set(&c->fault, 503, NULL, "the server is going down"), -1;
    if (h->status.reason == JOB_ERROR)
        return job_fault(c, &h->status.err), -1;
    return 1;
}

static void write_progress(struct call *c, struct choice *h)
{
    struct json_out *o;

    if (!c->r.progress || h->status.processed == h->progress || h->status.state == JOB_WAITING)
        return;
    h->progress = h->status.processed;
    if (!(o = event_begin()))
        return;
    json_open_object(o);
    json_key(o, "choices");
    json_open_array(o);
    json_close_array(o);
    put_progress(o, "prompt_progress", h);
    json_close_object(o);
    event_send(c, NULL, o);
}

/* One choice brought up to date. -1: an error. */
static int advance(struct call *c, struct choice *h)
{
    struct err e = {0};
    int rc;

    if (h->finish != FINISH_NOT)
        return 0;
    rc = take(c, h);
    if (rc < 0)
        return rc;
    if (rc && turn_end(&h->turn, rc == 1 && h->status.reason == JOB_STOP ? h->status.stop_id : UINT32_MAX, &e))
        return fault_set(&c->fault, 500, NULL, "%s", e.msg), -1;
    if (!c->first_s && h->turn.n_tokens)
        c->first_s = exchange_seconds(c->x);
    if (c->streaming)
        write_progress(c, h);
    if (rc == 2) {
        job_cancel(h->job); /* it has gone on */
        job_look(h->job, &h->status);
        h->status.reason = JOB_STOP;
    }
    if (c->streaming && choice_has_more(h))
        c->forms->delta(c, h);
    if (!rc)
        return 0;
    finish_of(h);
    if (c->streaming)
        c->forms->finished(c, h);
    return 0;
}

static void complete(struct call *c)
{
    struct exchange *x = c->x;
    struct json_out *o = NULL;
    const char *text;
    size_t n;
    struct err e = {0};

    close_jobs(c);
    log_line(LOG_INFO, "%s %s: %zu + %zu tokens, %zu known, first after %.1f ms", exchange_id(x), exchange_path(x),
             call_prompt_tokens(c), call_answer_tokens(c), call_cached_tokens(c), 1e3 * c->first_s);
    if (c->streaming) {
        c->forms->end(c);
        call_free(c);
        exchange_end(x);
        return;
    }
    if (!(o = json_out_new(0)))
        e.code = -ENOMEM;
    else
        c->forms->whole(c, o);
    if (!o || json_text(o, &text, &n, &e)) {
        fault_set(&c->fault, 500, NULL, "the answer cannot be written: %s", o ? e.msg : "no memory");
        json_out_free(o);
        fail(c);
        return;
    }
    call_free(c);
    exchange_reply(x, 200, "application/json; charset=utf-8", text, n);
    json_out_free(o);
}

static void bring_up_to_date(struct call *c)
{
    size_t open = 0;

    if (c->streaming && exchange_full(c->x))
        return; /* on_drained goes on; the job does not wait for a slow client */
    for (size_t i = 0; i < c->n_choices; i++) {
        if (advance(c, &c->choice[i])) {
            fail(c);
            return;
        }
        open += c->choice[i].finish == FINISH_NOT;
    }
    if (!open)
        complete(c);
}

static void on_drained(void *arg)
{
    struct call *c = arg;

    if (c->was_full)
        bring_up_to_date(c);
}

/* Everybody's news. 1: there were tokens. */
static int look(struct api *a)
{
    uint64_t before = a->taken;

    for (struct call *c = a->calls, *next; c; c = next) {
        next = c->next;
        c->was_full = c->streaming && exchange_full(c->x);
        if (!c->was_full)
            bring_up_to_date(c);
    }
    return a->taken > before;
}

/* To be woken costs as much as to write a token. A model that makes one in less than NEWS_US would have us woken for
 * each; then we look again by ourselves, once in so long, and nobody wakes us until a look finds nothing.
 *
 * No news is lost: the scheduler tells its tokens (under the job's lock), then reads `looking`. We store 0 there
 * before we take. Who read the 1 from before told its tokens before we take them. */
static void on_news(void *arg)
{
    struct api *a = arg;
    struct timespec last = a->news;
    int64_t us;

    atomic_store(&a->looking, 0);
    clock_gettime(CLOCK_MONOTONIC, &a->news);
    us = (a->news.tv_sec - last.tv_sec) * 1000000 + (a->news.tv_nsec - last.tv_nsec) / 1000;
    if (look(a) && us < 2 * NEWS_US) {
        http_timer_set(a->again, NEWS_US);
        atomic_store(&a->looking, 1);
    }
}

void api_news(void *api)
{
    struct api *a = api;
    uint64_t one = 1;

    if (!atomic_load(&a->looking))
        (void)!write(a->news_fd, &one, sizeof one);
}

/* ---- submission ---- */

static int status_of(int code)
{
    switch (code) {
    case -EBUSY:
        return 429;
    case -EAGAIN:
    case -ESHUTDOWN:
        return 503;
    case -ENOMEM:
        return 500;
    default:
        return 400;
    }
}

static int submit_one(struct call *c, struct choice *h, uint32_t choice)
{
    struct request *r = &c->r;
    struct job_request q = {
        .ids = r->prompt[h->prompt].ids.ids,
        .n_ids = r->prompt[h->prompt].ids.n,
        .max_tokens = r->max_tokens < 0 ? SIZE_MAX : (size_t)r->max_tokens,
        .settings = r->settings,
        .stop = c->api->eog,
        .n_stop = c->api->n_eog,
        .ignore_eos = r->ignore_eos,
        .n_probs = r->n_probs,
        .cache_prompt = r->cache_prompt,
    };
    struct err e = {0};
    int rc;

    q.settings.choice = choice;
    if (turn_open(&h->turn, r, c->api->served->template ? chat_format(c->api->served->template) : CHAT_PLAIN,
                  c->api->served->tok, choice, &e) ||
        (r->grammar && grammar_clone(r->grammar, &q.grammar, &e)))
        return fault_set(&c->fault, 500, NULL, "%s", e.msg);
    rc = jobs_submit(c->api->jobs, &q, &h->job, &e);
    if (!rc)
        return 0;
    grammar_close(q.grammar);
    if (rc == -E2BIG)
        c->fault.type = "exceed_context_size_error";
    return fault_set(&c->fault, status_of(rc), NULL, "%s", e.msg);
}

static int submit(struct call *c)
{
    size_t n = c->r.n_prompts * c->r.n;

    c->choice = calloc(n, sizeof *c->choice);
    if (!c->choice)
        return fault_set(&c->fault, 500, NULL, "no memory for %zu answers", n);
    c->n_choices = n;
    for (size_t i = 0; i < n; i++)
        c->choice[i].turn.word = -1;
    for (size_t i = 0; i < n; i++) {
        c->choice[i].prompt = i / c->r.n;
        if (submit_one(c, &c->choice[i], (uint32_t)(i % c->r.n)))
            return c->fault.status;
    }
    return 0;
}

static void make_id(struct call *c)
{
    c->created = time(NULL);
    snprintf(c->id, sizeof c->id, "%s%s", c->forms->id_prefix, exchange_id(c->x) + 4);
}

/* Back from the reading thread. */
static void prepared(void *arg)
{
    struct call *c = arg;
    struct api *a = c->api;

    c->reading = 0;
    if (!c->x) {
        call_free(c);
        return;
    }
    if (c->task) { /* no tokens are wanted */
        struct exchange *x = c->x;

        if (c->fault.status)
            reply_fault(x, &c->fault);
        else
            exchange_reply(x, 200, "application/json; charset=utf-8", c->reply, c->reply_n);
        call_free(c);
        return;
    }
    make_id(c);
    if (c->fault.status || submit(c)) {
        fail(c);
        return;
    }
    c->at = &a->calls;
    c->next = a->calls;
    if (c->next)
        c->next->at = &c->next;
    a->calls = c;
    if (c->r.stream) {
        exchange_stream(c->x, "text/event-stream");
        exchange_on_drained(c->x, on_drained, c);
        c->streaming = 1;
        c->forms->begin(c);
    }
    bring_up_to_date(c); /* it may be over already */
}

/* ---- the reading thread ---- */

static void read_call(struct call *c)
{
    size_t n = evbuffer_get_length(c->body);
    const char *text = n ? (const char *)evbuffer_pullup(c->body, -1) : "";

    if (!text)
        fault_set(&c->fault, 500, NULL, "no memory for the request");
    else if (c->task)
        c->task(c->api, text, n, c);
    else
        request_read(c->api->served, c->kind, text, n, &c->r, &c->fault);
    evbuffer_free(c->body);
    c->body = NULL;
}

static void *reader(void *arg)
{
    struct api *a = arg;

    pthread_setname_np(pthread_self(), "http-read");
    pthread_mutex_lock(&a->lock);
    while (!a->ending || a->to_read) {
        struct call *c = a->to_read;

        if (!c) {
            pthread_cond_wait(&a->wake, &a->lock);
            continue;
        }
        a->to_read = c->next;
        if (!a->to_read)
            a->to_read_last = &a->to_read;
        c->next = NULL;
        pthread_mutex_unlock(&a->lock);
        read_call(c);
        while (http_post(a->http, prepared, c)) /* no memory for two pointers */
            usleep(10000);
        pthread_mutex_lock(&a->lock);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

static void refuse_loading(struct exchange *x)
{
    struct fault f = {0};

    fault_set(&f, 503, NULL, "Loading model");
    reply_fault(x, &f);
}

static void arrive(struct exchange *x, struct api *a, enum api_kind kind, const struct forms *forms, api_task *task)
{
    struct fault f = {0};
    struct call *c;

    if (!atomic_load_explicit(&a->ready, memory_order_acquire)) {
        refuse_loading(x);
        return;
    }
    c = calloc(1, sizeof *c);
    if (!c || !(c->body = exchange_take_body(x))) {
        free(c);
        fault_set(&f, 500, NULL, "no memory for the request");
        reply_fault(x, &f);
        return;
    }
    c->api = a;
    c->x = x;
    c->kind = kind;
    c->forms = forms;
    c->task = task;
    c->reading = 1;
    exchange_on_gone(x, on_gone, c);
    pthread_mutex_lock(&a->lock);
    *a->to_read_last = c;
    a->to_read_last = &c->next;
    pthread_cond_signal(&a->wake);
    pthread_mutex_unlock(&a->lock);
}

/* ---- routes ---- */

struct post_route {
    const char *path;
    enum api_kind kind;
    const struct forms *forms;
    api_task *task;
};
static const struct post_route post_routes[] = {
    {"/v1/chat/completions", API_CHAT, &forms_chat, NULL},
    {"/chat/completions", API_CHAT, &forms_chat, NULL},
    {"/v1/completions", API_TEXT, &forms_text, NULL},
    {"/completions", API_COMPLETION, &forms_completion, NULL},
    {"/completion", API_COMPLETION, &forms_completion, NULL},
    {"/v1/responses", API_RESPONSES, &forms_responses, NULL},
    {"/responses", API_RESPONSES, &forms_responses, NULL},
    {"/v1/messages", API_MESSAGES, &forms_messages, NULL},
    {"/v1/messages/count_tokens", API_MESSAGES, NULL, task_count_tokens},
    {"/tokenize", API_TEXT, NULL, task_tokenize},
    {"/detokenize", API_TEXT, NULL, task_detokenize},
    {"/apply-template", API_CHAT, NULL, task_apply_template},
};
enum { N_POST_ROUTES = sizeof post_routes / sizeof *post_routes };
_Static_assert(sizeof post_routes / sizeof *post_routes <= API_ROUTES, "room for all");

static void on_post(struct exchange *x, void *arg)
{
    const struct api_route *r = arg;
    const struct post_route *p = &post_routes[r->number];

    arrive(x, r->api, p->kind, p->forms, p->task);
}

static void on_ping(void *arg)
{
    struct api *a = arg;

    for (struct call *c = a->calls; c; c = c->next) {
        if (c->streaming && !c->sent && !exchange_full(c->x))
            exchange_send(c->x, ": ping\n\n", 8);
        c->sent = 0;
    }
}

/* Answers that have taken their time end where they are. */
static void on_second(void *arg)
{
    struct api *a = arg;

    for (struct call *c = a->calls, *next; c; c = next) {
        next = c->next;
        if (c->late || exchange_seconds(c->x) < a->o.answer_s)
            continue;
        c->late = 1;
        for (size_t i = 0; i < c->n_choices; i++)
            job_cancel(c->choice[i].job);
        bring_up_to_date(c);
    }
}

static int add_routes(struct api *a, struct err *e)
{
    int rc = 0;

    for (size_t i = 0; i < N_POST_ROUTES && !rc; i++) {
        a->route[i] = (struct api_route){a, i};
        rc = http_route(a->http, HTTP_POST, post_routes[i].path, 0, on_post, &a->route[i], e);
    }
    return rc ? rc : api_info_routes(a, e);
}

int api_open(const struct api_options *o, struct http *h, struct api **out, struct err *e)
{
    struct api *a = calloc(1, sizeof *a);
    int rc = 0;

    if (!a)
        return err_set(e, -ENOMEM, "no memory for the server");
    a->o = *o;
    a->http = h;
    a->to_read_last = &a->to_read;
    a->started = time(NULL);
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->wake, NULL);
    if (!(a->again = http_timer(h, on_news, a, e)))
        rc = -ENOMEM;
    a->news_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!rc && a->news_fd < 0)
        rc = err_set(e, -errno, "no eventfd for the server: %s", strerror(errno));
    if (!rc && !(rc = http_watch(h, a->news_fd, on_news, a, e)) && o->ping_s)
        rc = http_every(h, 1000 * o->ping_s, on_ping, a, e);
    if (!rc && o->answer_s)
        rc = http_every(h, 1000, on_second, a, e);
    if (!rc)
        rc = add_routes(a, e);
    if (rc) {
        api_close(a);
        return rc;
    }
    *out = a;
    return 0;
}

static int stop_ids(struct api *a, struct err *e)
{
    uint32_t n = a->served->n_vocab, n_tok = tokenizer_n_vocab(a->served->tok);

    a->eog = malloc((n + 1) * sizeof *a->eog);
    if (!a->eog)
        return err_set(e, -ENOMEM, "no memory for the server");
    for (uint32_t id = 0; id < n && id < n_tok; id++)
        if (token_is_eog(a->served->tok, id))
            a->eog[a->n_eog++] = id;
    return 0;
}

int api_ready(struct api *a, const struct served *s, struct jobs *j, const struct api_facts *f, struct err *e)
{
    sigset_t all, before;
    int rc;

    a->served = s;
    a->jobs = j;
    a->facts = *f;
    snprintf(a->fingerprint, sizeof a->fingerprint, "conclave-%s-%s", f->version, f->build);
    if ((rc = stop_ids(a, e)))
        return rc;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&a->thread, NULL, reader, a);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc)
        return err_set(e, -rc, "no thread for the server: %s", strerror(rc));
    a->reading = 1;
    atomic_store_explicit(&a->ready, 1, memory_order_release);
    return 0;
}

void api_close(struct api *a)
{
    if (!a)
        return;
    if (a->news_fd >= 0)
        close(a->news_fd);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->wake);
    free(a->eog);
    free(a);
}

void api_stop(struct api *a)
{
    if (!a || !a->reading)
        return;
    pthread_mutex_lock(&a->lock);
    a->ending = 1;
    pthread_cond_signal(&a->wake);
    pthread_mutex_unlock(&a->lock);
    pthread_join(a->thread, NULL);
    a->reading = 0;
}
