/* What several sequences give: tokens a second of N answers at a time, and what a token takes beside the engine's
 * steps (sampling, the scheduler, its lock). Then what an answer notices of a long prompt beside it, and the prompt of
 * the answer.
 *   jobs_bench [MODEL [TOKENS [CARDS [PROMPT]]]]   the demo model, 128 tokens an answer, no cards, a prompt of 1000 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "coordinator/engine.h"
#include "coordinator/serve/jobs.h"
#include "shm/bell.h" /* now_ns */
#include "tests/programs.h"

enum { MOST = 8, PROMPT = 16, ROUNDS = 3, LONG = 1000 };

struct bench {
    struct jobs *j;
    struct engine *en;
    size_t tokens, prompt;
};

static struct job *submit(struct bench *b, uint32_t seed, size_t prompt, size_t most)
{
    uint32_t *ids = malloc(prompt * sizeof *ids), n_vocab = engine_model(b->en)->n_vocab;
    struct job_request r = {.ids = ids, .n_ids = prompt, .max_tokens = most, .n_probs = -1};
    struct err e = {0};
    struct job *q;

    for (uint32_t k = 0; ids && k < prompt; k++)
        ids[k] = (11 + 37 * k + 101 * seed) % n_vocab;
    sample_defaults(&r.settings);
    r.settings.seed = seed;
    if (!ids || jobs_submit(b->j, &r, &q, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        exit(1);
    }
    free(ids);
    return q;
}

/* Seconds of n answers at a time. */
static double answers(struct bench *b, uint32_t n)
{
    struct job *q[MOST];
    uint64_t start = now_ns();

    for (uint32_t i = 0; i < n; i++)
        q[i] = submit(b, i, PROMPT, b->tokens);
    for (uint32_t i = 0; i < n; i++) {
        struct job_status s;
        while (job_look(q[i], &s), s.state != JOB_DONE)
            usleep(2000);
        job_free(q[i]);
    }
    return (double)(now_ns() - start) * 1e-9;
}

/* An answer alone (beside 0), or with long prompts beside it, one after the other: its tokens a second, the longest
 * time between two, and the mean time of such a prompt. */
static void gaps(struct bench *b, int beside)
{
    struct job *q = submit(b, 1, PROMPT, 2 * b->tokens), *long_one = NULL;
    uint64_t first = 0, last = 0, gap = 0, tokens = 0, prompts = 0;
    double prompt_ms = 0;
    struct job_status s;
    struct job_token k;

    do {
        struct job_status p;
        if (long_one && (job_look(long_one, &p), p.state == JOB_DONE)) {
            prompt_ms += p.timings.prompt_ms;
            prompts++;
            job_free(long_one);
            long_one = NULL;
        }
        if (beside && !long_one && tokens > 8)
            long_one = submit(b, 7 + (uint32_t)prompts, b->prompt, 0);
        job_look(q, &s);
        while (job_take(q, &k, 1)) {
            first = first ? first : k.at_ns;
            if (last && k.at_ns - last > gap)
                gap = k.at_ns - last;
            last = k.at_ns;
            tokens++;
        }
        usleep(500);
    } while (s.state != JOB_DONE || (beside && !prompts));
    printf("%-24s %10.1f %18.2f", beside ? "beside long prompts" : "alone", (double)(tokens - 1) * 1e9 / (double)(last - first),
           1e-6 * (double)gap);
    if (prompts)
        printf(" %26.1f", prompt_ms / (double)prompts);
    printf("\n");
    job_free(q);
    job_free(long_one);
}

static void fairness(struct bench *b)
{
    printf("an answer                  tokens/s   longest gap, ms   ms of a prompt of %zu tokens\n", b->prompt);
    for (int round = 0; round < ROUNDS; round++) {
        gaps(b, 0);
        gaps(b, 1);
    }
    for (int round = 0; round < ROUNDS; round++) {
        struct job *q = submit(b, 200 + (uint32_t)round, b->prompt, 0);
        struct job_status s;
        while (job_look(q, &s), s.state != JOB_DONE)
            usleep(500);
        printf("%-24s %*s %26.1f\n", "no answer", 29, "", s.timings.prompt_ms);
        job_free(q);
    }
}

static void *client(void *arg)
{
    struct bench *b = arg;
    struct jobs_stats s;

    do
        usleep(1000);
    while (jobs_stats(b->j, &s, NULL, 0), !s.running);
    answers(b, MOST); /* pages, plans */
    printf("answers at a time   tokens/s   ms a step   us a token beside the steps\n");
    for (uint32_t n = 1; n <= MOST; n *= 2)
        for (int round = 0; round < ROUNDS; round++) {
            struct engine_stats x, y;
            double t;
            engine_stats(b->en, &x);
            t = answers(b, n);
            engine_stats(b->en, &y);
            double in_steps = 1e-9 * (double)(y.step_ns - x.step_ns), all = (double)(n * b->tokens);
            printf("%17u %10.1f %11.3f %29.1f\n", n, all / t, 1e3 * in_steps / (double)(y.steps - x.steps),
                   1e6 * (t - in_steps) / all);
            fflush(stdout);
        }
    fairness(b);
    jobs_drain(b->j, 0);
    return NULL;
}

static int body(struct engine *en, void *arg, struct err *e)
{
    struct bench *b = arg;
    pthread_t t;
    int rc;

    b->en = en;
    pthread_create(&t, NULL, client, b);
    rc = jobs_run(b->j, en, e);
    pthread_join(t, NULL);
    return rc;
}

int main(int argc, char **argv)
{
    struct bench b = {.tokens = argc > 2 ? strtoul(argv[2], NULL, 10) : 128,
                      .prompt = argc > 4 ? strtoul(argv[4], NULL, 10) : LONG};
    struct jobs_options jo = {.n_slots = MOST, .queue_most = MOST};
    struct engine_options o = {.model_path = argc > 1 ? argv[1] : "tests/demo/story-moe-q4_k_m.gguf",
                               .n_ctx = (uint32_t)(2 * b.tokens + PROMPT + b.prompt + 1),
                               .n_seqs = MOST,
                               .kv = KV_F16,
                               .want = {.kind = CARDS_NONE, .trunk = TRUNK_AUTO}};
    struct err e = {0};

    for (char *at = argc > 3 ? argv[3] : ""; *at && o.want.n < MAX_CARDS; at += *at == ',') {
        o.want.kind = CARDS_LISTED;
        o.want.card[o.want.n++] = (uint32_t)strtoul(at, &at, 10);
    }
    if (programs_find() || jobs_open(&jo, &b.j, &e) || engine_run(&o, body, &b, &e)) {
        fprintf(stderr, "jobs_bench: %s\n", e.msg);
        return 1;
    }
    jobs_close(b.j);
    return 0;
}
