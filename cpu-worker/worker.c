/* The loop between the rings and the team. It never waits for one thing: what another node owes us
 * is looked for in the same round as both rings (rule 16). */
#define _GNU_SOURCE
#include "cpu-worker/worker.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define UNWATCHED_US 1000 /* between two looks while no steward could wake us */

int worker_init(struct worker *w, const struct maps *m, const struct passer *passer, int threads, uint64_t calls,
                uint64_t amends, struct err *e)
{
    int rc;

    memset(w, 0, sizeof *w);
    w->m = m;
    w->ctl = -1;
    w->e = e;
    rc = shares_init(&w->shares, m, calls, amends, e);
    if (passer && passer->run) {
        w->passer = *passer;
        w->shares.whole = 1;
        return rc;
    }
    return rc ? rc : work_init(&w->work, m, threads, e);
}

void worker_drop(struct worker *w)
{
    shares_drop(&w->shares);
    work_drop(&w->work);
}

static int quits(const struct worker *w)
{
    return atomic_load_explicit(w->quit, memory_order_acquire);
}
static int watched(const struct worker *w)
{
    return atomic_load_explicit(&w->m->board->watch, memory_order_acquire) == 1;
}

/* What a sleeper looks at besides the rings. */
static int look(void *arg)
{
    const struct worker *w = arg;

    return quits(w) ? LOOK_FOUND : shares_look(&w->shares);
}

static void rest(struct worker *w, int shared)
{
    if (wait_round(&w->round, shared))
        return;
    if (watched(w))
        consumer_sleep(&w->shares.consumer, 0);
    else /* nobody would wake us; the coordinator is starting or ending */
        nanosleep(&(struct timespec){.tv_nsec = UNWATCHED_US * 1000L}, NULL);
}

static int work(struct worker *w, struct team *t, const struct pass *p)
{
    struct outbox *out = w->m->out;
    uint64_t begin = now_ns(), items = atomic_load_explicit(&out->count.items, memory_order_relaxed),
             traced = timeline_begin(&w->m->timeline), call = p->call->head.seq;
    uint32_t layer = p->call->head.layer;

    fault_work();
    if (!w->passer.run && fault_due(FAULT_ERROR))
        return err_set(w->e, -EIO, "an error was asked for (CONCLAVE_DIE)");
    counter_add(&out->heartbeat, 1);
    if (w->passer.run) {
        int rc = w->passer.run(w->passer.arg, p, w->e);
        if (rc)
            return rc;
    } else {
        work_pass(&w->work, t, p);
    }
    shares_done(&w->shares, p);
    counter_add(&out->count.work_ns, now_ns() - begin);
    items = atomic_load_explicit(&out->count.items, memory_order_relaxed) - items;
    timeline_end(&w->m->timeline, TIMELINE_LEADER, TIMELINE_PASS, traced, call, layer, (uint32_t)items);
    w->round = 0;
    return 0;
}

static void ready(struct worker *w, struct team *t)
{
    if (!w->passer.run)
        work_warm(&w->work, t);
    if (w->ctl < 0)
        return;
    if (team_unpinned(t))
        ctl_sendf(w->ctl, CTL_LOG, 1, "%d of %d threads could not be pinned to their cores",
                  team_unpinned(t), team_size(t));
    fault_pass(FAULT_READY);
    ctl_sendf(w->ctl, CTL_READY, 0, "%d threads", team_size(t));
}

int worker_lead(void *arg, struct team *t)
{
    struct worker *w = arg;
    const struct pass *p;
    int declined, rc;

    w->shares.consumer.c.also = look;
    w->shares.consumer.c.arg = w;
    ready(w, t);
    while (!quits(w)) {
        if (shares_follow(&w->shares, w->e))
            return w->e->code;
        p = shares_next(&w->shares, &declined);
        if (p && (rc = work(w, t, p)))
            return rc;
        if (!p && !declined)
            rest(w, team_shared(t));
    }
    return 0;
}

/* ---- CTL_START ---- */

static int whole(const char **at, int most, int *out)
{
    char *end;
    long n;

    if (**at < '0' || **at > '9')
        return -1;
    n = strtol(*at, &end, 10);
    if (n > most)
        return -1;
    *out = (int)n;
    *at = end;
    return 0;
}
static int word(const char **at, const char *w)
{
    size_t n = strlen(w);

    if (strncmp(*at, w, n))
        return -1;
    *at += n;
    return 0;
}
static int read_cpus(const char **at, struct start *st)
{
    if (!word(at, "-"))
        return 0;
    st->cpus = calloc((size_t)st->threads, sizeof *st->cpus);
    for (int i = 0; st->cpus && i < st->threads; i++)
        if ((i && word(at, ",")) || whole(at, 1 << 20, &st->cpus[i]))
            return -1;
    return st->cpus ? 0 : -1;
}

int start_read(const char *text, struct start *st, struct err *e)
{
    const char *at = text;

    memset(st, 0, sizeof *st);
    if (!word(&at, "threads=") && !whole(&at, START_MAX_THREADS, &st->threads) && st->threads > 0 &&
        !word(&at, " cpus=") && !read_cpus(&at, st) && !word(&at, " shared=") &&
        !whole(&at, 1, &st->shared) && !*at)
        return 0;
    free(st->cpus);
    memset(st, 0, sizeof *st);
    return err_set(e, -EPROTO, "'%.100s' is no start (wanted: threads=N cpus=a,b|- shared=0|1)",
                   text);
}
