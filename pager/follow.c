/* Between the order ring and the reads: takes orders, checks them, answers them. The only place
 * that writes the pager's outbox. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "pager/check.h"
#include "pager/io.h"
#include "shm/orders.h"

#define TRUNK_LAYER UINT32_MAX /* struct order: the expert's number is a trunk tensor's index */

static void count(_Atomic uint64_t *c, uint64_t n)
{
    atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}

/* bell_sleep's look. ending has no ring number: found is enough. */
static int look(void *arg)
{
    struct pager *p = arg;

    if (atomic_load_explicit(&p->ending, memory_order_acquire))
        return LOOK_FOUND;
    return order_look(&p->geo, p->orders, p->next);
}

static void answer(struct pager *p, uint64_t number, enum order_why why, uint32_t piece)
{
    struct pager_counters *c = &p->box->count;

    count(&c->orders, 1);
    count(&c->errors, why == ORDER_WHY_IO || why == ORDER_WHY_CHECKSUM);
    count(&c->cancelled, why == ORDER_WHY_CANCELLED);
    order_done(&p->geo, p->box, number, why, piece);
    /* the steward waits for it, and while a model is loaded the main thread does */
    bell_ring(&p->bells[PROC_STEWARD], &p->board->asleep_steward);
    bell_ring_fenced(&p->bells[PROC_MAIN], &p->board->asleep_main);
}

/* A checked order, with the lock held. */
static int obey(struct pager *p, const struct order *o, struct err *e)
{
    struct job_result res;

    if (jobs_slot_open(&p->jobs, o->number))
        return err_set(e, -EPROTO, "order %" PRIu64 " came before the one in its place was answered",
                       o->number);
    if (o->kind == ORDER_READ) {
        int rc = finish_prepare(p, o, e);
        return rc ? rc : jobs_add(&p->jobs, o);
    }
    if (o->kind == ORDER_CANCEL) {
        res = jobs_cancel(&p->jobs, o->target);
        follow_outcome(p, &res, o);
    } else {
        count(&p->box->count.raised, (uint64_t)jobs_raise(&p->jobs, o->target, o->prio));
    }
    answer(p, o->number, ORDER_WHY_OK, 0);
    return 0;
}

/* One order, if it is there: 1; not yet: 0; impossible: -1. */
static int take_one(struct pager *p)
{
    struct check_bounds b = {.n_shards = p->n_shards,
                             .shard_bytes = p->shard_bytes,
                             .n_segs = p->n_segs,
                             .seg_bytes = p->seg_bytes};
    struct err e = {0};
    struct order o;
    int rc;

    if (!order_take(&p->geo, p->orders, p->next, &o))
        return 0;
    rc = check_order(&o, p->next, &b, &e);
    pthread_mutex_lock(&p->lock);
    if (!rc)
        rc = obey(p, &o, &e);
    if (rc)
        pager_trouble(p, &e);
    pthread_mutex_unlock(&p->lock);
    p->next++;
    return rc ? -1 : 1;
}

void *follow_orders(void *pager)
{
    struct pager *p = pager;
    int got = 1;

    /* Sleeps at once, without rounds of looking: a read lasts a hundred times longer than a
     * wake-up, and the core belongs to the teams. It may sleep whether or not the steward watches,
     * because whoever publishes an order rings for it himself. */
    while (!atomic_load_explicit(&p->ending, memory_order_acquire)) {
        count(&p->box->heartbeat, 1);
        for (got = take_one(p); got > 0; got = take_one(p))
            p->form->kick(
                p); /* each at once: the first read is on its way while the next is taken */
        if (got < 0)
            break;
        count(&p->box->count.sleeps, 1);
        if (bell_sleep(&p->bells[p->child->outbox], &p->box->asleep, look, p, 0) == BELL_NET)
            count(&p->box->count.net_finds, 1);
    }
    /* A thread outlives the reads that it submitted: the kernel fails what an ended one left. */
    pthread_mutex_lock(&p->lock);
    p->stopping = 1;
    while (p->jobs.out)
        pthread_cond_wait(&p->quiet, &p->lock);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

void follow_size(struct pager *p)
{
    const struct tune *t = &p->tune;
    struct tune_choice c = t->now;

    if (!p->form->tunes) { /* each read has its thread: only the size can be given */
        c.depth = p->form->depth;
        c.low_depth = p->form->low_depth;
    }
    jobs_size(&p->jobs, c.read_bytes, c.depth, c.low_depth);
    if (t->trying)
        return;
    atomic_store_explicit(&p->box->count.read_bytes, c.read_bytes, memory_order_relaxed);
    atomic_store_explicit(&p->box->count.depth, c.depth | (uint64_t)t->how << 32, memory_order_relaxed);
    atomic_store_explicit(&p->box->count.tuned_rate, (uint64_t)t->best, memory_order_relaxed);
    atomic_store_explicit(&p->box->count.default_rate, (uint64_t)t->standard, memory_order_relaxed);
}

/* A read came: what is measured of it. */
static void measure(struct pager *p, uint64_t bytes, int bounce)
{
    if (!p->form->tunes || p->tune.how != TUNE_DEFAULT ||
        !tune_came(&p->tune, bytes, now_ns(), jobs_more(&p->jobs), bounce, jobs_urgent(&p->jobs)))
        return;
    follow_size(p);
    if (p->tune.how == TUNE_MEASURED)
        ctl_sendf(p->child->ctl, CTL_LOG, 2,
                  "reads of %u KiB, %u out: %.2f GB/s while loading (512 KiB, 16 out: %.2f)",
                  p->tune.now.read_bytes >> 10, p->tune.now.depth, p->tune.best * 1e-9,
                  p->tune.standard * 1e-9);
}

struct job_read *follow_next(struct pager *p)
{
    struct job_read *r = p->stopping ? NULL : jobs_next(&p->jobs);

    if (r)
        r->began = timeline_begin(&p->timeline);
    return r;
}

uint8_t *follow_place(const struct pager *p, const struct job_read *r)
{
    return (r->bounce ? p->bounce : p->seg_base[r->seg]) + r->dst;
}

/* One line for an order that cannot be carried out. The coordinator has it before the answer. */
static void tell(struct pager *p, const struct order *o, const struct job_result *res)
{
    const struct pager_file *f = &p->file[res->shard];
    struct stat st = {0};
    char what[64], why[200];

    if (o->layer == TRUNK_LAYER)
        snprintf(what, sizeof what, "trunk tensor %u", o->expert);
    else
        snprintf(what, sizeof what, "layer %u, expert %u", o->layer, o->expert);
    if (res->report == -ENODATA && !fstat(f->fd, &st) && (uint64_t)st.st_size > res->at)
        snprintf(why, sizeof why, "no bytes come from there, though the file ends at byte %lld",
                 (long long)st.st_size);
    else if (res->report == -ENODATA)
        snprintf(why, sizeof why,
                 "the file ends at byte %lld: it has become shorter since it was opened, get it again",
                 (long long)st.st_size);
    else if (res->report == -EBADMSG)
        snprintf(why, sizeof why, "%" PRIu64 " bytes have another checksum than when they were packed",
                 o->piece[res->piece].need);
    else
        snprintf(why, sizeof why, "%s", strerror(-res->report));
    if (o->flags & ORDER_SOFT)
        ctl_sendf(p->child->ctl, CTL_LOG, 1, "%s: byte %" PRIu64 ": cannot read %s: %s", f->name,
                  res->at, what, why);
    else
        ctl_sendf(p->child->ctl, CTL_ERROR, o->number, "%s: byte %" PRIu64 ": cannot read %s: %s",
                  f->name, res->at, what, why);
}

void follow_outcome(struct pager *p, const struct job_result *res, const struct order *o)
{
    if (res->report)
        tell(p, o, res);
    if (res->ended) {
        count(&p->box->count.expert_reads, o->layer != TRUNK_LAYER && !res->why);
        answer(p, res->number, res->why, res->piece); /* o may be another order's after this */
    }
    if (res->work)
        pthread_cond_signal(&p->work);
    if (p->stopping && !p->jobs.out)
        pthread_cond_signal(&p->quiet);
}

int follow_result(struct pager *p, struct job_read *r, int64_t got)
{
    const struct pager_file *f = &p->file[r->shard];
    const struct order *o = jobs_order(r);
    uint64_t off = r->off, bytes = r->bytes;
    int bounce = r->bounce;
    struct pager_counters *c = &p->box->count;
    struct job_result res;

    timeline_row(&p->timeline, TIMELINE_LEADER, TIMELINE_READ, (uint16_t)(r->id + 1), r->began, got > 0 ? (uint64_t)got : 0, o->layer,
              o->expert);
    res = jobs_result(&p->jobs, r, got);
    if (res.again)
        r->began = timeline_begin(&p->timeline);

    count(&p->box->heartbeat, 1);
    count(&c->reads, 1);
    count(&c->bytes, got > 0 ? (uint64_t)got : 0);
    count(&c->retries, got < 0 && res.again);
    if (!f->direct && got > 0) /* the page cache keeps no weights */
        posix_fadvise(f->fd, (off_t)off, (off_t)bytes, POSIX_FADV_DONTNEED);
    if (got > 0)
        measure(p, (uint64_t)got, bounce);
    follow_outcome(p, &res, o);
    return res.again;
}
