/* Reading with a few threads, each with one pread at a time: where io_uring is disabled (containers
 * do that). Same reads, same order of them, more context switches. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pager/io.h"

/* fio, direct reads of READ_BYTES: four keep the disk as busy as more do; some are kept for demand
 */
#define THREADS 8u
#define LOW_THREADS 6u

struct threads {
    pthread_cond_t more; /* with the lock: there may be reads, or stopping */
    pthread_t thread[THREADS];
    unsigned n;
};

/* The read until it is over. With the lock held, which is given back meanwhile. */
static void make(struct pager *p, struct job_read *r)
{
    int again;

    do {
        int fd = p->file[r->shard].fd;
        uint8_t *at = follow_place(p, r);
        ssize_t got;

        pthread_mutex_unlock(&p->lock);
        got = pread(fd, at, r->bytes, (off_t)r->off);
        if (got < 0)
            got = -errno;
        pthread_mutex_lock(&p->lock);
        again = follow_result(p, r, got);
        if (again == 2) {
            pthread_mutex_unlock(&p->lock);
            usleep(RETRY_NAP_US);
            pthread_mutex_lock(&p->lock);
        }
    } while (again);
}

static void *work(void *pager)
{
    struct pager *p = pager;
    struct threads *t = p->io;
    struct job_read *r;

    pthread_mutex_lock(&p->lock);
    while (!p->stopping) {
        r = follow_next(p);
        if (r)
            make(p, r);
        else
            pthread_cond_wait(&t->more, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static void kick(struct pager *p)
{
    struct threads *t = p->io;

    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&t->more);
    pthread_mutex_unlock(&p->lock);
}

static void close_threads(struct pager *p)
{
    struct threads *t = p->io;

    kick(p);
    for (unsigned i = 0; i < t->n; i++)
        pthread_join(t->thread[i], NULL);
    pthread_cond_destroy(&t->more);
    free(t);
    p->io = NULL;
}

static int open_threads(struct pager *p, struct err *e)
{
    struct threads *t = calloc(1, sizeof *t);
    int rc = 0;

    if (!t)
        return err_set(e, -ENOMEM, "no memory for the reading threads");
    pthread_cond_init(&t->more, NULL);
    p->io = t;
    while (t->n < THREADS && !rc) {
        rc = pthread_create(&t->thread[t->n], NULL, work, p);
        t->n += !rc;
    }
    if (!t->n) { /* fewer than wanted are enough */
        close_threads(p);
        return err_set(e, -rc, "cannot start a thread: %s", strerror(rc));
    }
    return 0;
}

const struct io_form io_threads_form = {.name = "threads",
                                        .depth = THREADS,
                                        .low_depth = LOW_THREADS,
                                        .open = open_threads,
                                        .kick = kick,
                                        .close = close_threads};
