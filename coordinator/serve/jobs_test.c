/* The scheduler over whole engines with the demo models: whatever else is asked for at the same time, whatever is
 * cancelled, kept, drafted or dies, every answer has the bytes that the same request has alone.
 *   jobs_test [CARDS]   what cards do, with the driver's, for instance 0 or 0,0 */
#define _GNU_SOURCE
#include "coordinator/serve/jobs.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "coordinator/draft/decode.h"
#include "coordinator/engine.h"
#include "coordinator/model/tokenizer.h"
#include "coordinator/sample/grammar.h"
#include "kernels/logprob/logprob.h"
#include "tests/programs.h"
#include "tests/test.h"

#define STORY "tests/demo/story-moe-q4_k_m.gguf"
#define GLM5NEXT "tests/demo/story-glm5next-f16.gguf"
#define GLM5NEXT_TINY "tests/golden/tiny/glm5next/model.gguf"
#define QWEN4EXP "tests/golden/models/qwen4exp-q8_0-iq4_xs/model.gguf"
enum { N_CTX = 192, N_JOBS = 64, MOST = 24, PROMPT_MOST = 96, FAMILIES = 5, VOCAB_LEAST = 256 };

static uint64_t seed = 20261130;
static uint32_t dice(uint32_t n)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(seed >> 33) % n;
}

/* ---- requests, and what they give alone ---- */

struct wish {
    uint32_t ids[PROMPT_MOST];
    size_t n_ids, most;
    struct sample_settings settings;
    struct sample_bias bias;
    uint32_t stop[2];
    int n_probs, ignore_eos, cache;
    const struct grammar *grammar; /* to be cloned */
    uint32_t answer[MOST];
    float logprob[MOST];
    size_t n;
    enum job_reason why;
    int grammar_ended; /* with no stop id */
};

/* Texts of a few families, which begin alike. */
static void make(struct wish *w, uint32_t i)
{
    uint32_t front = 4 + dice(60), tail = 1 + dice(20);

    memset(w, 0, sizeof *w);
    for (uint32_t k = 0; k < front + tail; k++)
        w->ids[k] = k < front ? (i % FAMILIES * 97 + k * 31) % VOCAB_LEAST : dice(VOCAB_LEAST);
    w->n_ids = front + tail;
    w->most = dice(8) ? 1 + dice(MOST) : dice(2);
    sample_defaults(&w->settings);
    w->settings.temp = dice(3) ? 0.9 : 0;
    w->settings.seed = dice(1000);
    w->settings.choice = dice(3);
    w->settings.repeat = dice(2) ? 1.1 : 1;
    w->bias = (struct sample_bias){dice(VOCAB_LEAST), dice(2) ? 3.0 : -(double)INFINITY};
    w->settings.bias = &w->bias;
    w->settings.n_bias = dice(2);
    w->stop[0] = dice(VOCAB_LEAST);
    w->stop[1] = dice(VOCAB_LEAST);
    w->ignore_eos = !dice(4);
    w->n_probs = (int)dice(5) - 1;
    w->cache = dice(4) != 0;
}

struct told {
    struct wish *w;
    size_t n_vocab;
};
static int told_alone(void *arg, uint32_t id, const float *row, struct err *e)
{
    struct told *t = arg;

    (void)e;
    if (t->w->n < MOST && t->w->n_probs >= 0)
        t->w->logprob[t->w->n] = (float)logprob(row, t->n_vocab, id);
    return 0;
}

/* By `conclave run`'s way: one sequence, no scheduler. */
static void alone(struct engine *en, struct wish *w)
{
    static uint32_t ids[N_CTX];
    struct sample_bias bias[4] = {w->bias, {w->stop[0], -INFINITY}, {w->stop[1], -INFINITY}};
    struct sample_settings s = w->settings;
    struct told told = {w, engine_model(en)->n_vocab};
    struct decode_options o = {.rows = w->n_probs >= 0, .chosen = told_alone, .arg = &told};
    struct decode d;
    struct err e = {0};

    if (w->grammar)
        CHECK(!grammar_clone(w->grammar, &o.grammar, &e), "%s", e.msg);
    if (!s.n_bias)
        bias[0] = (struct sample_bias){0, 0};
    s.bias = bias;
    s.n_bias = w->ignore_eos ? 3 : 1;
    memcpy(ids, w->ids, w->n_ids * sizeof *ids);
    CHECK(!decode_open(&d, en, &s, o, ids, w->n_ids, &e), "%s", e.msg);
    decode_prompt(&d, NULL, &e);
    w->why = JOB_LENGTH;
    for (; w->n < w->most && w->why == JOB_LENGTH; w->n += w->why == JOB_LENGTH || w->grammar_ended) {
        uint32_t id;
        CHECK(!decode_next(&d, &id, &e), "%s", e.msg);
        w->answer[w->n] = id;
        w->grammar_ended = d.ended;
        if (d.ended || (!w->ignore_eos && (id == w->stop[0] || id == w->stop[1])))
            w->why = JOB_STOP;
    }
    decode_close(&d);
    grammar_close(o.grammar);
}

/* ---- clients ---- */

struct test {
    const char *what;
    struct jobs *j;
    struct wish *wish;
    int news, cancels, tid;
    int talk, saved; /* a conversation too; states of a recurrent model are saved */
    _Atomic int hold; /* the scheduler gets no further than its news */
    struct job *_Atomic watched; /* gets a token in every step, once it answers */
    size_t watched_n;
    _Atomic int wrong; /* of the scheduler's thread, which counts no checks */
    void *(*clients)(void *arg);
    uint64_t cached; /* tokens, in all */
};

static void watch(struct test *t)
{
    struct job_status s;

    job_look(t->watched, &s);
    if (t->watched_n && s.n_tokens != t->watched_n + 1)
        atomic_store(&t->wrong, 1);
    t->watched_n = s.n_tokens;
    if (s.state == JOB_DONE)
        atomic_store(&t->watched, NULL);
}

static void rung(void *arg)
{
    struct test *t = arg;
    uint64_t one = 1;

    if (gettid() == t->tid && atomic_load(&t->watched))
        watch(t);

    if (write(t->news, &one, sizeof one) != sizeof one)
        atomic_store(&t->wrong, 1);
    while (gettid() == t->tid && atomic_load(&t->hold))
        usleep(1000);
}

static struct job *submit(struct test *t, const struct wish *w)
{
    struct job_request r = {.ids = w->ids,
                            .n_ids = w->n_ids,
                            .max_tokens = w->most,
                            .settings = w->settings,
                            .stop = w->stop,
                            .n_stop = 2,
                            .ignore_eos = w->ignore_eos,
                            .n_probs = w->n_probs,
                            .cache_prompt = w->cache};
    struct err e = {0};
    struct job *q = NULL;

    if (w->grammar)
        CHECK(!grammar_clone(w->grammar, &r.grammar, &e), "%s", e.msg);
    CHECK(!jobs_submit(t->j, &r, &q, &e), "%s: %s", t->what, e.msg);
    return q;
}

struct client {
    struct job *q;
    size_t n;          /* taken */
    size_t leaves_at;  /* cancelled after so many; SIZE_MAX: never */
};

static void check_token(const struct test *t, uint32_t i, size_t at, const struct job_token *k)
{
    const struct wish *w = &t->wish[i];

    CHECK(at < w->n && k->id == w->answer[at], "%s: job %u: token %zu is %u, alone %u", t->what, i, at, k->id,
          at < w->n ? w->answer[at] : UINT32_MAX);
    if (w->n_probs < 0) {
        CHECK(isnan(k->logprob) && !k->n_top);
        return;
    }
    CHECK(at >= w->n || !memcmp(&k->logprob, &w->logprob[at], sizeof k->logprob), "%s: job %u: %g, alone %g", t->what, i,
          k->logprob, w->logprob[at]);
    CHECK(k->n_top == (uint32_t)w->n_probs && k->at_ns);
    for (uint32_t p = 0; p < k->n_top; p++)
        CHECK(p ? k->top[p].logprob <= k->top[p - 1].logprob : k->top[0].logprob >= k->logprob);
}

/* 1: it is done, or was left. */
static int look(struct test *t, struct client *c, uint32_t i)
{
    const struct wish *w = &t->wish[i];
    struct job_token k[5];
    struct job_status s;
    size_t n;

    job_look(c->q, &s);
    while ((n = job_take(c->q, k, 1 + dice(5))))
        for (size_t at = 0; at < n; at++)
            check_token(t, i, c->n++, &k[at]);
    if (s.state != JOB_DONE && c->n < c->leaves_at)
        return 0;
    t->cached += s.cached;
    if (s.state != JOB_DONE || s.reason == JOB_CANCELLED) {
        if (dice(2))
            job_cancel(c->q);
        job_look(c->q, &s);
        CHECK(s.state != JOB_DONE || s.reason == JOB_CANCELLED);
    } else {
        CHECK(s.reason == w->why && c->n == w->n && s.n_tokens == w->n, "%s: job %u ended by %d after %zu tokens, alone by %d "
              "after %zu (%s)", t->what, i, s.reason, c->n, w->why, w->n, s.err.msg);
        CHECK(s.processed == w->n_ids && s.timings.prompt_n + s.timings.cache_n == w->n_ids && s.cached < w->n_ids);
        CHECK(s.timings.predicted_n == w->n + (w->why == JOB_STOP && !w->grammar_ended));
        CHECK(w->cache || !s.cached);
    }
    job_free(c->q);
    return 1;
}

/* All of them at once, a few at a time at first. */
static void ask(struct test *t)
{
    struct client *c = calloc(N_JOBS, sizeof *c);
    uint32_t sent = 0, done = 0;

    while (done < N_JOBS) {
        uint64_t rings;
        for (uint32_t more = 1 + dice(20); sent < N_JOBS && more; more--, sent++) {
            c[sent].q = submit(t, &t->wish[sent]);
            c[sent].leaves_at = t->cancels && !dice(4) ? dice(12) : SIZE_MAX;
        }
        if (sent == N_JOBS)
            CHECK(read(t->news, &rings, sizeof rings) == sizeof rings);
        for (uint32_t i = 0; i < sent; i++)
            if (c[i].q && look(t, &c[i], i)) {
                c[i].q = NULL;
                done++;
            }
    }
    free(c);
}

/* ---- a conversation ---- */

static size_t answered(struct test *t, const uint32_t *ids, size_t n, int cache, uint32_t *answer, size_t most)
{
    struct job_request r = {.ids = ids, .n_ids = n, .max_tokens = most, .n_probs = -1, .cache_prompt = cache};
    struct job_token k[MOST];
    struct job_status s;
    struct err e = {0};
    struct job *q;

    sample_defaults(&r.settings);
    CHECK(!jobs_submit(t->j, &r, &q, &e), "%s", e.msg);
    do
        usleep(500), job_look(q, &s);
    while (s.state != JOB_DONE);
    CHECK(s.reason == JOB_LENGTH && job_take(q, k, MOST) == most, "%s", s.err.msg);
    for (size_t i = 0; i < most; i++)
        answer[i] = k[i].id;
    job_free(q);
    return s.cached;
}

/* The first `same` of n tokens stand in a slot, `known` are not computed again; the answer is the same. */
static void turn(struct test *t, uint32_t *ids, size_t same, size_t n, size_t known)
{
    uint32_t with[10], without[10];
    size_t cached;

    for (size_t i = same; i < n; i++)
        ids[i] = dice(VOCAB_LEAST);
    cached = answered(t, ids, n, 1, with, 10);
    CHECK(cached == known, "%s: %zu of %zu tokens were known, wanted %zu", t->what, cached, n, known);
    memcpy(ids + n, with, sizeof with);
    CHECK(!answered(t, ids, n, 0, without, 10) && !memcmp(with, without, sizeof with), "%s: %zu tokens", t->what, n);
}

static void conversation(struct test *t)
{
    uint32_t ids[N_CTX];

    turn(t, ids, 0, 100, 0);
    turn(t, ids, 110, 120, 109);              /* the answer's last token was never fed */
    turn(t, ids, 115, 150, t->saved ? 109 : 115);  /* of a state that a slot has */
    turn(t, ids, 150, 150, t->saved ? 150 - 16 : 149); /* a little before the prompt's end */
}

static void slots_are_free(struct test *t)
{
    struct jobs_slot slot[4];
    struct jobs_stats s;

    do /* the last one's slot is free before the next step */
        jobs_stats(t->j, &s, slot, 4);
    while (s.busy);
    CHECK(!atomic_load(&t->wrong));
    CHECK(!s.waiting && s.submitted == s.done && !slot[0].job && !slot[3].job, "%s", t->what);
    CHECK(s.cached_tokens >= t->cached && s.steps && s.busy_slots > s.steps, "%s: %llu steps, %llu slots in them", t->what,
          (unsigned long long)s.steps, (unsigned long long)s.busy_slots);
    CHECK(s.predicted_tokens && s.tokens_most && s.wait_most_ms > 0 && !s.failed);
}

static void wait_for(struct test *t)
{
    struct jobs_stats s;

    do
        usleep(1000);
    while (jobs_stats(t->j, &s, NULL, 0), !s.running);
}

static void *clients(void *arg)
{
    struct test *t = arg;

    wait_for(t);
    ask(t);
    slots_are_free(t);
    if (t->talk)
        conversation(t);
    jobs_drain(t->j, 0);
    return NULL;
}

/* What is refused, what ends early, and that nobody is awake with nothing to do. */

static int refused(struct test *t, struct job_request r, const char *says)
{
    struct err e = {0};
    struct job *q = NULL;
    int rc = jobs_submit(t->j, &r, &q, &e);

    CHECK(rc < 0 && strstr(e.msg, says), "%d: %s", rc, e.msg);
    return rc;
}

static uint64_t switches(int tid)
{
    char path[64], line[256];
    unsigned long long n = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/self/task/%d/status", tid);
    f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "voluntary_ctxt_switches: %llu", &n) == 1)
            break;
    if (f)
        fclose(f);
    return n;
}

static struct job_request plain(const uint32_t *ids, size_t n, size_t most)
{
    struct job_request r = {.ids = ids, .n_ids = n, .max_tokens = most, .n_probs = -1};

    sample_defaults(&r.settings);
    return r;
}

static void ends(struct job *q, enum job_reason why, size_t n)
{
    struct job_status s;

    do
        usleep(1000), job_look(q, &s);
    while (s.state != JOB_DONE);
    CHECK(s.reason == why && s.n_tokens == n, "%d: %zu tokens, %s", s.reason, s.n_tokens, s.err.msg);
    job_free(q);
}

/* An answer among long prompts: it gets a token in every step, and they come on. The contexts' room says that they are
 * done before it, by TURNS_PIECE_LEAST tokens a step. */
static void nobody_starves(struct test *t, const uint32_t *ids)
{
    struct job_request r = plain(ids, 3, 90);
    struct job *q[4];
    struct job_status s;
    struct jobs_stats n;
    struct err e = {0};

    t->watched_n = 0;
    atomic_store(&t->hold, 1);
    CHECK(!jobs_submit(t->j, &r, &q[0], &e), "%s", e.msg);
    atomic_store(&t->watched, q[0]);
    do
        jobs_stats(t->j, &n, NULL, 0);
    while (!n.busy);
    r = plain(ids, 150, 1);
    for (int i = 1; i < 4; i++)
        CHECK(!jobs_submit(t->j, &r, &q[i], &e), "%s", e.msg);
    atomic_store(&t->hold, 0);
    do
        usleep(500), job_look(q[0], &s);
    while (s.state != JOB_DONE);
    while (atomic_load(&t->watched))
        usleep(500);
    CHECK(s.n_tokens == 90 && t->watched_n == 90 && !atomic_load(&t->wrong), "%zu, %zu", s.n_tokens, t->watched_n);
    for (int i = 1; i < 4; i++) {
        job_look(q[i], &s);
        CHECK(s.state == JOB_DONE && s.reason == JOB_LENGTH && s.n_tokens == 1, "prompt %d: %zu of 150", i, s.processed);
        job_free(q[i]);
    }
    job_free(q[0]);
}

static void *edges(void *arg)
{
    static uint32_t ids[N_CTX + 1];
    struct test *t = arg;
    struct job_request r = plain(ids, 3, 2);
    struct sample_bias bias = {1u << 30, 1};
    struct job *q[5];
    struct err e = {0};
    struct jobs_stats s;
    struct job_status look;
    uint64_t n;

    CHECK_EQ(refused(t, r, "loading"), -EAGAIN);
    wait_for(t);
    r.n_ids = N_CTX;
    CHECK_EQ(refused(t, r, "192"), -E2BIG);
    r.n_ids = 0;
    CHECK_EQ(refused(t, r, "empty"), -EINVAL);
    r = plain((uint32_t[]){1, 1u << 30}, 2, 2);
    CHECK_EQ(refused(t, r, "token 1 "), -EINVAL);
    r = plain(ids, 3, 2);
    r.settings.bias = &bias;
    r.settings.n_bias = 1;
    CHECK_EQ(refused(t, r, "bias"), -EINVAL);
    r = plain(ids, 3, 2);
    r.settings.temp = NAN;
    CHECK_EQ(refused(t, r, "temp"), -EINVAL);
    r = plain(ids, 3, 2);
    r.n_probs = JOB_PROBS_MOST + 1;
    CHECK_EQ(refused(t, r, "20"), -EINVAL);

    r = plain(ids, N_CTX - 3, SIZE_MAX); /* until the context is full */
    CHECK(!jobs_submit(t->j, &r, &q[0], &e), "%s", e.msg);
    ends(q[0], JOB_CONTEXT, 3);

    usleep(300000); /* every thread that looked has gone to sleep */
    n = switches(t->tid);
    CHECK(n);
    usleep(300000);
    CHECK(switches(t->tid) == n, "%llu wake-ups with nothing to do", (unsigned long long)(switches(t->tid) - n));

    nobody_starves(t, ids);

    atomic_store(&t->hold, 1); /* one in work, four wait, the sixth does not come in */
    r = plain(ids, 100, SIZE_MAX);
    CHECK(!jobs_submit(t->j, &r, &q[0], &e), "%s", e.msg);
    do
        jobs_stats(t->j, &s, NULL, 0);
    while (!s.busy);
    for (int i = 1; i < 5; i++)
        CHECK(!jobs_submit(t->j, &r, &q[i], &e), "%s", e.msg);
    CHECK_EQ(refused(t, r, "4 requests wait"), -EBUSY);
    job_look(q[3], &look);
    CHECK(look.state == JOB_WAITING && job_ahead(q[3]) == 2 && look.slot == -1);
    for (int i = 0; i < 3; i += 2) { /* one that is in work, one that waits */
        job_cancel(q[i]);
        job_look(q[i], &look);
        CHECK(look.state == JOB_DONE && look.reason == JOB_CANCELLED);
    }
    CHECK_EQ(job_ahead(q[3]), 1);
    job_free(q[0]); /* whatever state they are in */
    job_free(q[1]);
    jobs_drain(t->j, 0);
    CHECK_EQ(refused(t, r, "ending"), -ESHUTDOWN);
    jobs_drain(t->j, 1);
    atomic_store(&t->hold, 0);
    for (int i = 2; i < 4; i++) {
        job_look(q[i], &look);
        CHECK(look.state == JOB_DONE && look.reason == JOB_CANCELLED);
        job_free(q[i]);
    }
    return NULL; /* the last one is jobs_close's */
}

/* ---- the engine ---- */

struct run {
    struct test *t;
    int want_alone; /* 1: the answers are made first */
};

static int body(struct engine *en, void *arg, struct err *e)
{
    struct run *r = arg;

    CHECK(engine_n_seqs(en) == 4 && engine_model(en)->n_vocab >= VOCAB_LEAST);
    r->t->saved = engine_saved_bytes(en) && engine_n_saved(en);
    for (uint32_t i = 0; r->want_alone && i < N_JOBS; i++)
        alone(en, &r->t->wish[i]);
    return jobs_run(r->t->j, en, e);
}

static void run(struct test *t, struct engine_options o, int want_alone)
{
    struct jobs_options jo = {.n_slots = 4, .queue_most = t->clients == edges ? 4 : N_JOBS, .drafts = o.drafts, .drafts_fixed = o.drafts > 0,
                              .news = rung, .arg = t};
    struct run r = {t, want_alone};
    struct err e = {0};
    pthread_t client;

    o.n_ctx = N_CTX;
    o.n_seqs = 4;
    o.n_saved = 4 * JOBS_SAVED;
    o.want.trunk = TRUNK_AUTO;
    t->tid = (int)gettid();
    t->news = eventfd(0, EFD_CLOEXEC);
    t->cached = 0;
    CHECK(!jobs_open(&jo, &t->j, &e), "%s", e.msg);
    pthread_create(&client, NULL, t->clients, t);
    if (engine_run(&o, body, &r, &e)) { /* the clients would wait for ever */
        printf("FAILED: %s: %s\n", t->what, e.msg);
        exit(1);
    }
    pthread_join(client, NULL);
    jobs_close(t->j);
    close(t->news);
}

/* Emulated cards, or the driver's that argv names: 0 or 0,0 */
static struct cards_wanted cards(int argc, char **argv)
{
    struct cards_wanted w = {.kind = CARDS_EMULATED, .n = 2};

    if (argc < 2)
        return w;
    w.kind = CARDS_LISTED;
    w.n = 0;
    for (char *at = argv[1]; *at && w.n < MAX_CARDS; at += *at == ',')
        w.card[w.n++] = (uint32_t)strtoul(at, &at, 10);
    return w;
}

/* Grammars for some of the story's jobs: one that may end, by a token that ends answers; two that let nothing come
 * after them, with such a token and without. */
static struct {
    struct grammar_vocab *v;
    struct grammar *g[3];
} grammars;
static void with_grammars(struct wish *w)
{
    static const char *const text[3] = {"root ::= [a-zA-Z ,]+", "root ::= [a-z ]{3,9} [.!]", "root ::= \"x\" [0-9]{2}"};
    struct model *m;
    struct tokenizer *t;
    uint32_t end = 0;
    struct err e = {0};

    CHECK(!model_open(STORY, 0, &m, &e) && !tokenizer_open(m->g, NULL, &t, &e) &&
          !grammar_vocab_new(t, m->n_vocab, &grammars.v, &e), "%s", e.msg);
    while (end < m->n_vocab && !token_is_eog(t, end))
        end++;
    CHECK(end < m->n_vocab);
    for (int i = 0; i < 3; i++) {
        struct grammar_source s = {.gbnf = text[i], .n = strlen(text[i])};
        CHECK(!grammar_open(grammars.v, &s, &grammars.g[i], &e), "%s", e.msg);
    }
    for (uint32_t i = 0; i < N_JOBS; i += 4) {
        uint32_t which = i / 4 % 3;
        w[i].grammar = grammars.g[which];
        w[i].settings.n_bias = 0;
        w[i].most = MOST;
        w[i].stop[0] = w[i].stop[1] = end;
        w[i].ignore_eos = which == 2;
    }
    tokenizer_close(t);
    model_close(m);
}

/* Drafts and saved states, here and in a card's worker, which may die: what it has saved goes with it. */
static void recurrent(const struct engine_options *o, const char *model, struct cards_wanted w, struct wish *wish)
{
    struct engine_options x = *o;

    x.model_path = model, x.drafts = 2;
    run(&(struct test){.what = "recurrent, drafts", .talk = 1, .wish = wish, .cancels = 1, .clients = clients}, x, 1);
    x.want = w;
    run(&(struct test){.what = "recurrent, drafts, on a card", .talk = 1, .wish = wish, .clients = clients}, x, 0);
    setenv("CONCLAVE_DIE", "step:150:0:2", 1);
    run(&(struct test){.what = "recurrent, drafts, a card that dies", .talk = 1, .wish = wish, .clients = clients}, x, 0);
    unsetenv("CONCLAVE_DIE");
}

int main(int argc, char **argv)
{
    static struct wish story[N_JOBS], glm5next[N_JOBS], qwen4exp[N_JOBS];
    const struct engine_options o = {.model_path = STORY, .kv = KV_F16, .threads = 2, .nodes = 1, .want = {.kind = CARDS_NONE}};
    struct engine_options x = o;
    int ends[3] = {0};

    CHECK(!programs_find());
    for (uint32_t i = 0; i < N_JOBS; i++) {
        make(&story[i], i);
        make(&glm5next[i], i);
        make(&qwen4exp[i], i);
    }
    with_grammars(story);
    run(&(struct test){.what = "several", .talk = 1, .wish = story, .clients = clients}, o, 1);
    for (uint32_t i = 0; i < N_JOBS; i += 4) /* each grammar ended as it should */
        ends[i / 4 % 3] += (story[i].why == JOB_STOP) * (story[i].grammar_ended ? 100 : 1);
    CHECK(ends[0] < 100 && ends[1] >= 100 && ends[2] >= 100, "%d %d %d", ends[0], ends[1], ends[2]);
    x.want = cards(argc, argv);
    run(&(struct test){.what = "trunk on a card", .talk = 1, .wish = story, .clients = clients}, x, 0);
    setenv("CONCLAVE_DIE", "step:60:0:2", 1); /* the trunk's host, and its successor */
    run(&(struct test){.what = "cards that die", .wish = story, .cancels = 1, .clients = clients}, x, 0);
    unsetenv("CONCLAVE_DIE");
    recurrent(&o, argc > 1 ? GLM5NEXT_TINY : GLM5NEXT, x.want, glm5next);
    if (argc > 1)
        return test_end();
    run(&(struct test){.what = "edges", .clients = edges}, o, 0);
    x = o;
    x.nodes = 2, x.batch = 3; /* a pass has no room for all */
    run(&(struct test){.what = "small passes, two nodes", .wish = story, .cancels = 1, .clients = clients}, x, 0);
    x = o;
    x.model_path = QWEN4EXP, x.table_ram = 1 << 15;
    run(&(struct test){.what = "a table by rows", .talk = 1, .wish = qwen4exp, .cancels = 1, .clients = clients}, x, 1);
    for (int i = 0; i < 3; i++)
        grammar_close(grammars.g[i]);
    grammar_vocab_free(grammars.v);
    return test_end();
}
