/* What several sequences give: tokens a second of N answers at a time, and what a token takes beside the engine's
 * steps (sampling, the scheduler, its lock).
 *   jobs_bench [MODEL [TOKENS [CARDS]]]   the demo model, 128 tokens an answer, no cards */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "coordinator/engine.h"
#include "coordinator/serve/jobs.h"
#include "shm/bell.h" /* now_ns */
#include "tests/programs.h"

enum { MOST = 8, PROMPT = 16, ROUNDS = 3 };

struct bench {
    struct jobs *j;
    struct engine *en;
    size_t tokens;
};

/* Seconds of n answers at a time. */
static double answers(struct bench *b, uint32_t n)
{
    uint32_t ids[PROMPT];
    struct job *q[MOST];
    uint64_t start = now_ns();
    struct err e = {0};

    for (uint32_t i = 0; i < n; i++) {
        struct job_request r = {.ids = ids, .n_ids = PROMPT, .max_tokens = b->tokens, .n_probs = -1};
        for (uint32_t k = 0; k < PROMPT; k++)
            ids[k] = 11 + 37 * k + 101 * i;
        sample_defaults(&r.settings);
        r.settings.seed = i;
        if (jobs_submit(b->j, &r, &q[i], &e)) {
            fprintf(stderr, "%s\n", e.msg);
            exit(1);
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        struct job_status s;
        while (job_look(q[i], &s), s.state != JOB_DONE)
            usleep(2000);
        job_free(q[i]);
    }
    return (double)(now_ns() - start) * 1e-9;
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
    struct bench b = {.tokens = argc > 2 ? strtoul(argv[2], NULL, 10) : 128};
    struct jobs_options jo = {.n_slots = MOST, .queue_most = MOST};
    struct engine_options o = {.model_path = argc > 1 ? argv[1] : "tests/demo/story-moe-q4_k_m.gguf",
                               .n_ctx = (uint32_t)b.tokens + PROMPT + 1,
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
