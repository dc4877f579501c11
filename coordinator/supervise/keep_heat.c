/* Between the steward, which may not wait for a disk, and the heat file. */
#define _GNU_SOURCE
#include "coordinator/supervise/keep_heat.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "coordinator/residency/heat_file.h"

#define SAVE_SECONDS 180
#define COPY_SECONDS 10 /* the steward answers in microseconds; one that has ended never does */

struct heat_keeper {
    struct heat_id id;
    char path[4096];
    uint32_t n_layers, n_experts;
    int known;      /* a file was read */
    float *uses;    /* lock */
    double tokens;  /* lock */
    int given;      /* lock: uses are newer than the file */
    int stop;       /* lock */
    int running;
    _Atomic int wanted;
    void (*ring)(void *arg);
    void *arg;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* by CLOCK_MONOTONIC */
};

static void line(const struct err *e)
{
    fprintf(stderr, "conclave: %s\n", e->msg);
}

struct heat_keeper *heat_keeper_open(const struct gguf *g, uint32_t n_layers, uint32_t n_experts)
{
    struct heat_keeper *k = calloc(1, sizeof *k);
    pthread_condattr_t attr;
    struct err e = {0};
    int rc;

    if (!k)
        return NULL;
    k->n_layers = n_layers;
    k->n_experts = n_experts;
    k->uses = calloc((size_t)n_layers * n_experts + 1, sizeof *k->uses);
    rc = k->uses ? heat_identify(g, &k->id, &e) : err_set(&e, -ENOMEM, "no memory for heat");
    if (!rc)
        rc = heat_path(&k->id, k->path, sizeof k->path, &e);
    if (rc) {
        line(&e);
        free(k->uses);
        free(k);
        return NULL;
    }
    rc = heat_load(k->path, &k->id, n_layers, n_experts, k->uses, &k->tokens, &e);
    if (rc < 0)
        line(&e);
    k->known = rc == 0;
    pthread_mutex_init(&k->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&k->changed, &attr);
    pthread_condattr_destroy(&attr);
    return k;
}

int heat_keeper_tell(const struct heat_keeper *k, struct policy *p)
{
    if (k->known)
        policy_import(p, k->uses, k->tokens);
    return k->known;
}

/* With the lock. */
static void save(struct heat_keeper *k)
{
    struct err e = {0};

    if (!k->given)
        return;
    k->given = 0;
    if (heat_save(k->path, &k->id, k->n_layers, k->n_experts, k->uses, k->tokens, &e))
        fprintf(stderr, "conclave: %s: this run's heat is not kept (with --no-heat none is)\n", e.msg);
}

/* Until stop or for so many seconds; the lock is given up meanwhile. Returns whether stop. */
static int wait_seconds(struct heat_keeper *k, int seconds, int until_given)
{
    struct timespec end;

    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += seconds;
    while (!k->stop && !(until_given && k->given))
        if (pthread_cond_timedwait(&k->changed, &k->lock, &end))
            break;
    return k->stop;
}

static void *keep(void *arg)
{
    struct heat_keeper *k = arg;

    pthread_mutex_lock(&k->lock);
    while (!wait_seconds(k, SAVE_SECONDS, 0)) {
        atomic_store_explicit(&k->wanted, 1, memory_order_release);
        k->ring(k->arg);
        if (!wait_seconds(k, COPY_SECONDS, 1))
            save(k);
    }
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

void heat_keeper_start(struct heat_keeper *k, void (*ring)(void *arg), void *arg)
{
    k->ring = ring;
    k->arg = arg;
    k->running = !pthread_create(&k->thread, NULL, keep, k); /* else it is written at the end only */
}

int heat_keeper_wants(const struct heat_keeper *k)
{
    return atomic_load_explicit(&k->wanted, memory_order_acquire);
}

void heat_keeper_give(struct heat_keeper *k, const struct policy *p)
{
    atomic_store_explicit(&k->wanted, 0, memory_order_relaxed);
    if (!p)
        return;
    pthread_mutex_lock(&k->lock);
    policy_export(p, k->uses, &k->tokens);
    k->given = 1;
    pthread_cond_broadcast(&k->changed);
    pthread_mutex_unlock(&k->lock);
}

void heat_keeper_stop(struct heat_keeper *k)
{
    if (!k->running)
        return;
    pthread_mutex_lock(&k->lock);
    k->stop = 1;
    pthread_cond_broadcast(&k->changed);
    pthread_mutex_unlock(&k->lock);
    pthread_join(k->thread, NULL);
    k->running = 0;
}

void heat_keeper_close(struct heat_keeper *k)
{
    if (!k)
        return;
    heat_keeper_stop(k);
    save(k);
    pthread_cond_destroy(&k->changed);
    pthread_mutex_destroy(&k->lock);
    free(k->uses);
    free(k);
}
