#define _GNU_SOURCE
#include "coordinator/pack/pool.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

struct pool {
    const struct pack_work *w;
    _Atomic uint64_t next, done;
    _Atomic int stop;
    pthread_mutex_t lock;
    pthread_cond_t over; /* lock: n_running */
    int n_running;
    struct err first;    /* lock */
};

static void fail(struct pool *p, const struct err *e)
{
    atomic_store(&p->stop, 1);
    pthread_mutex_lock(&p->lock);
    if (!p->first.code)
        p->first = *e;
    pthread_mutex_unlock(&p->lock);
}

static void *run(void *arg)
{
    struct pool *p = arg;
    struct pack_room room = {0};
    struct err e = {0};
    uint64_t i;

    if (pack_room_make(&room, &e))
        fail(p, &e);
    while (!atomic_load(&p->stop) && (i = atomic_fetch_add(&p->next, 1)) < p->w->n)
        if (p->w->piece(p->w->arg, i, &room, &p->done, &e) < 0) {
            fail(p, &e);
            break;
        }
    pack_room_free(&room);
    pthread_mutex_lock(&p->lock);
    p->n_running--;
    pthread_cond_signal(&p->over);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* Until all threads have ended. Returns what the last tick said. */
static int look_on(struct pool *p, struct err *e)
{
    struct timespec until;
    int said = 0;

    pthread_mutex_lock(&p->lock);
    while (p->n_running) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += PACK_TICK_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (!pthread_cond_timedwait(&p->over, &p->lock, &until) || said)
            continue;
        pthread_mutex_unlock(&p->lock);
        said = p->w->tick(p->w->arg, atomic_load(&p->done), 0, e);
        if (said)
            atomic_store(&p->stop, 1);
        pthread_mutex_lock(&p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return said;
}

int pack_work(const struct pack_work *w, struct err *e)
{
    struct pool p = {.w = w};
    pthread_t thread[PACK_THREADS];
    struct err late = {0};
    int n = 0, said, last, rc;

    pthread_mutex_init(&p.lock, NULL);
    pthread_cond_init(&p.over, NULL);
    for (; n < PACK_THREADS; n++) {
        pthread_mutex_lock(&p.lock);
        p.n_running++;
        pthread_mutex_unlock(&p.lock);
        rc = pthread_create(&thread[n], NULL, run, &p);
        if (rc) {
            struct err none = {0};
            err_set(&none, -rc, "cannot start a thread: %s", strerror(rc));
            pthread_mutex_lock(&p.lock);
            p.n_running--;
            pthread_mutex_unlock(&p.lock);
            fail(&p, &none);
            break;
        }
    }
    said = look_on(&p, e);
    for (int i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
    last = w->tick(w->arg, atomic_load(&p.done), 1, &late); /* also after a failure: what was made is kept */
    pthread_cond_destroy(&p.over);
    pthread_mutex_destroy(&p.lock);
    if (p.first.code)
        return err_set(e, p.first.code, "%s", p.first.msg);
    if (said < 0)
        return said;
    if (last < 0)
        return err_set(e, last, "%s", late.msg);
    return said;
}
