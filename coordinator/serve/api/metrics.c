/* /metrics: Prometheus' text. Counters end in _total, seconds and bytes are plain. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "coordinator/lights.h"
#include "coordinator/serve/api/inside.h"
#include "coordinator/serve/fault.h"

enum { METRICS_BYTES = 128 << 10 };

struct text {
    char s[METRICS_BYTES];
    size_t n;
};

static void add(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct text *t, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(t->s + t->n, sizeof t->s - t->n, fmt, ap);
    va_end(ap);
    if (n > 0)
        t->n = t->n + (size_t)n < sizeof t->s ? t->n + (size_t)n : sizeof t->s - 1;
}

static void one(struct text *t, const char *name, int counter, const char *help, double v)
{
    add(t, "# HELP conclave:%s %s\n# TYPE conclave:%s %s\nconclave:%s %.15g\n", name, help, name,
        counter ? "counter" : "gauge", name, v);
}

static double per(double a, double b)
{
    return b > 0 ? a / b : 0;
}

static void head(struct text *t, const char *name, const char *help)
{
    add(t, "# HELP conclave:%s %s\n# TYPE conclave:%s counter\n", name, help, name);
}

static void tiers(struct text *t, const char *name, const char *help, double card, double ram, double disk)
{
    head(t, name, help);
    add(t, "conclave:%s{tier=\"card\"} %.15g\nconclave:%s{tier=\"ram\"} %.15g\nconclave:%s{tier=\"disk\"} %.15g\n",
        name, card, name, ram, name, disk);
}

enum { W_CALLS, W_ITEMS, W_BYTES, W_BUSY };
static void workers(struct text *t, const struct engine_stats *s, const char *name, const char *help, int what)
{
    head(t, name, help);
    for (uint32_t i = 0; i < s->n_workers; i++) {
        const struct engine_worker *w = &s->worker[i];
        double v = what == W_CALLS   ? (double)w->calls
                   : what == W_ITEMS ? (double)w->items
                   : what == W_BYTES ? (double)w->weight_bytes
                                     : 1e-9 * (double)w->work_ns;

        add(t, "conclave:%s{worker=\"%s\"} %.15g\n", name, w->name, v);
    }
}

/* What the engine counts; told twice a second, and when it rests. */
static void engine(struct text *t, const struct lights *l)
{
    struct engine_stats s;
    uint64_t at, card = 0, ram = 0;

    if (!l || !lights_stats(l, &s, &at))
        return;
    for (uint32_t i = 0; i < s.n_workers; i++)
        *(s.worker[i].card >= 0 ? &card : &ram) += s.worker[i].weight_bytes;
    tiers(t, "experts_total", "Works of experts by where the expert lay when it was called for",
          (double)(s.card_items + s.own_items), (double)(s.items - s.card_items - s.disk_items), (double)s.disk_items);
    tiers(t, "experts_bytes_total", "Weights of experts that were read for computing (disk: read from files)",
          (double)card, (double)ram, (double)s.bytes_read);
    one(t, "steps_seconds_total", 1, "Time in passes of the trunk", 1e-9 * (double)s.step_ns);
    one(t, "experts_wait_seconds_total", 1, "Of that: the trunk waited for experts", 1e-9 * (double)s.wait_ns);
    one(t, "card_deaths_total", 1, "Cards' workers that ended", s.card_deaths);
    one(t, "card_successors_total", 1, "Cards' workers that followed them", s.card_successors);
    one(t, "lost_items_total", 1, "Works of dead workers, given to others", (double)s.lost_items);
    workers(t, &s, "worker_calls_total", "Calls that a worker took part in", W_CALLS);
    workers(t, &s, "worker_items_total", "Works of experts that a worker did", W_ITEMS);
    workers(t, &s, "worker_weight_bytes_total", "Weights that a worker computed with", W_BYTES);
    workers(t, &s, "worker_busy_seconds_total", "Time that a worker computed", W_BUSY);
}

void on_metrics(struct exchange *x, void *arg)
{
    struct api *a = arg;
    struct text *t;
    struct fault f = {0};
    struct jobs_stats s;
    struct http_counts h = http_counts(a->http);

    if (!atomic_load_explicit(&a->ready, memory_order_acquire) || !(t = calloc(1, sizeof *t))) {
        fault_set(&f, 503, NULL, "Loading model");
        reply_fault(x, &f);
        return;
    }
    jobs_stats(a->jobs, &s, NULL, 0);
    one(t, "prompt_tokens_total", 1, "Tokens of prompts that were computed", (double)s.prompt_tokens);
    one(t, "prompt_cached_tokens_total", 1, "Tokens of prompts that were known from an earlier request",
        (double)s.cached_tokens);
    one(t, "prompt_seconds_total", 1, "Time of prompts", s.prompt_s);
    one(t, "prompt_tokens_seconds", 0, "Tokens of prompts a second", per((double)s.prompt_tokens, s.prompt_s));
    one(t, "tokens_predicted_total", 1, "Tokens of answers", (double)s.predicted_tokens);
    one(t, "tokens_predicted_seconds_total", 1, "Time of answers", s.predicted_s);
    one(t, "predicted_tokens_seconds", 0, "Tokens of an answer a second",
        per((double)s.predicted_tokens, s.predicted_s));
    one(t, "requests_processing", 0, "Requests in work", (double)s.busy);
    one(t, "requests_deferred", 0, "Requests that wait for a slot", (double)s.waiting);
    one(t, "n_tokens_max", 0, "Most tokens in a slot so far", (double)s.tokens_most);
    one(t, "n_decode_total", 1, "Passes of the trunk", (double)s.steps);
    one(t, "n_busy_slots_per_decode", 0, "Slots in work in a pass", per((double)s.busy_slots, (double)s.steps));
    one(t, "spec_decode_num_drafts_total", 1, "Passes with drafted tokens", (double)s.drafts);
    one(t, "spec_decode_num_draft_tokens_total", 1, "Drafted tokens", (double)s.draft_tokens);
    one(t, "spec_decode_num_accepted_tokens_total", 1, "Drafted tokens that were right", (double)s.draft_accepted);
    one(t, "jobs_submitted_total", 1, "Answers asked for", (double)s.submitted);
    one(t, "jobs_refused_total", 1, "Answers refused: queue full, context too small", (double)s.refused);
    one(t, "jobs_done_total", 1, "Answers that ended", (double)s.done);
    one(t, "jobs_cancelled_total", 1, "Answers whose client had gone or had enough", (double)s.cancelled);
    one(t, "jobs_failed_total", 1, "Answers that ended with an error", (double)s.failed);
    one(t, "slots", 0, "Slots", s.n_slots);
    one(t, "queue_wait_seconds", 0, "Wait of the oldest request in the queue", 1e-3 * s.wait_now_ms);
    one(t, "queue_wait_most_seconds", 0, "Longest wait for a slot so far", 1e-3 * s.wait_most_ms);
    one(t, "http_connections_total", 1, "Connections accepted", (double)h.accepted);
    one(t, "http_requests_total", 1, "Requests", (double)h.requests);
    one(t, "http_refused_total", 1, "Requests without a valid key, or of another origin", (double)h.refused);
    one(t, "http_clients_gone_total", 1, "Clients that left before their answer's end", (double)h.gone);
    one(t, "http_connections", 0, "Connections now", h.connections);
    one(t, "http_requests", 0, "Requests that are being answered", h.exchanges);
    one(t, "http_arriving_bytes", 0, "Bytes of requests that are held", (double)h.arriving);
    engine(t, a->o.lights);
    exchange_reply(x, 200, "text/plain; version=0.0.4; charset=utf-8", t->s, t->n);
    free(t);
}
