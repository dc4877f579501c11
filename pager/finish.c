/* What is left to do with bytes that have come: copying out of bounce buffers, hashing. On a thread of
 * its own and without the lock, so that reads go on meanwhile; started by the first order that needs
 * it. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h> /* the same hash in the form that the processor has: replaces the name */
#endif

#include "pager/io.h"
#include "shm/bell.h"

/* 0: the piece's bytes are not those that were packed. */
static int hash_matches(struct pager *p, const struct order_piece *piece)
{
    uint64_t start = now_ns();
    int ok = XXH3_64bits(p->seg_base[piece->seg] + piece->dst, piece->need) == piece->xxh;
    struct pager_counters *c = &p->box->count;

    atomic_fetch_add_explicit(&c->checked_bytes, piece->need, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->checked_ns, now_ns() - start, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->bad_checksums, !ok, memory_order_relaxed);
    return ok;
}

/* With the lock held, which is given back meanwhile. */
static void do_work(struct pager *p, const struct job_work *w)
{
    const struct order *o = jobs_order_of(w->job); /* constant while the order is open, but prio */
    const struct job_read *r = w->read;
    struct job_result res;
    int ok = 1;

    pthread_mutex_unlock(&p->lock);
    if (r)
        memcpy(p->seg_base[r->seg] + r->copy_to, p->bounce + r->copy_from, r->n_copy);
    else
        ok = hash_matches(p, &o->piece[w->piece]);
    pthread_mutex_lock(&p->lock);
    res = jobs_work_over(&p->jobs, w, ok);
    follow_outcome(p, &res, o);
    if (!r)
        return;
    pthread_mutex_unlock(&p->lock); /* there is a place for one more read */
    p->form->kick(p);
    pthread_mutex_lock(&p->lock);
}

static void *finish(void *pager)
{
    struct pager *p = pager;
    struct job_work w;

    pthread_mutex_lock(&p->lock);
    while (!p->finish_end)
        if (jobs_work_next(&p->jobs, &w))
            do_work(p, &w);
        else
            pthread_cond_wait(&p->work, &p->lock);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

int finish_prepare(struct pager *p, const struct order *o, struct err *e)
{
    uint32_t flags = 0;
    int rc;

    for (uint32_t i = 0; i < o->n_pieces; i++)
        flags |= o->piece[i].flags;
    if (flags & PIECE_COPY && !p->bounce) {
        size_t bytes = (size_t)p->form->depth * READ_BYTES;
        void *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (m == MAP_FAILED)
            return err_set(e, -ENOMEM, "no memory for %zu bytes of bounce buffers", bytes);
        p->bounce = m;
    }
    if (!flags || p->has_finisher)
        return 0;
    rc = pthread_create(&p->finisher, NULL, finish, p);
    if (rc)
        return err_set(e, -rc, "cannot start a thread: %s", strerror(rc));
    p->has_finisher = 1;
    return 0;
}

void finish_stop(struct pager *p)
{
    pthread_mutex_lock(&p->lock);
    p->finish_end = 1;
    pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
    if (p->has_finisher) /* set by the follower, which has ended */
        pthread_join(p->finisher, NULL);
    if (p->bounce)
        munmap(p->bounce, (size_t)p->form->depth * READ_BYTES);
    p->has_finisher = 0;
    p->bounce = NULL;
}
