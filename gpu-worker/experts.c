/* What a card's worker has besides a node's: its card, the pool there, orders about it, the passes themselves on
 * a real card, and perhaps the trunk. */
#include "gpu-worker/experts.h"

#include <stdio.h>
#include <stdlib.h>

#include "cpu-worker/process.h"
#include "gpu-worker/card_pass.h"
#include "gpu-worker/host.h"
#include "gpu-worker/own.h"
#include "gpu-worker/pool.h"
#include "gpu-worker/start.h"
#include "gpu-worker/upload.h"

struct worker_of_card {
    struct card_start start;
    struct card *card;
    struct pool pool;
    struct card_pass *pass; /* NULL: emulated, the team does it */
    struct slabs *slabs;
    struct uploader *uploader;
    struct pager_box *answers; /* to orders */
    struct hits *hits; /* these three: where the trunk is executed here */
    struct own *own;
    struct host *host;
};

static int start(void *arg, const char **text, struct err *e)
{
    struct worker_of_card *w = arg;

    return card_start_read(text, &w->start, e);
}

/* CONCLAVE_CARD_DELAY_US, for tests: each expert is computed so much later than it could be. */
static uint32_t delay(void)
{
    const char *v = getenv("CONCLAVE_CARD_DELAY_US");

    return v ? (uint32_t)strtoul(v, NULL, 10) : 0;
}

static int begin_trunk(struct worker_of_card *w, const struct child *c, const struct maps *m, uint64_t calls,
                       struct err *e)
{
    struct host_config hc = {.child = c, .maps = m, .start = &w->start, .first = calls + 1, .hits = w->hits,
                             .card = w->card, .uploader = w->uploader};
    struct answers *answers = child_seg(c, SEG_ANSWERS, 0);
    int rc;

    if (!answers)
        return err_set(e, -EPROTO, "no segment for answers was passed on");
    if (!card_real(w->card)) { /* else nodes of its graphs */
        if ((rc = own_open(m, w->hits, answers, (int)w->start.team, delay(), &w->own, e)))
            return rc;
        hc.own = own_of(w->own);
    }
    return (rc = host_open(&hc, &w->host, e)) ? rc : host_start(w->host, e);
}

static int open_card(struct worker_of_card *w, const struct child *c, struct maps *m, struct passer *p, struct err *e)
{
    char device[16] = "emu";
    int rc;

    if (w->start.device >= 0)
        snprintf(device, sizeof device, "%d", w->start.device);
    if ((rc = card_open(device, &w->card, e)) || (rc = pool_take(&w->pool, m, w->start.card, w->card, e)))
        return rc;
    if (!card_real(w->card))
        return 0;
    *p = (struct passer){card_pass_run, NULL};
    rc = card_pass_open(w->card, c, m, &w->pass, e);
    p->arg = w->pass;
    return rc;
}

static int begin(void *arg, const struct child *c, struct maps *m, const struct ctl_msg *start_msg, struct passer *p,
                 struct err *e)
{
    struct worker_of_card *w = arg;
    int rc;

    w->answers = child_seg(c, SEG_CARD_ANSWERS, card_outbox(outbox_card(c->outbox), 0));
    if (!w->answers)
        return err_set(e, -EPROTO, "no segment for answers to orders was passed on");
    if ((rc = open_card(w, c, m, p, e)) || (rc = slabs_open(w->card, c, m, &w->slabs, e)) ||
        (w->start.trunk && (rc = hits_open(m->g.n_layers, m->g.n_experts, m->g.order_slots, &w->hits, e))) ||
        (rc = uploader_start(c, m, w->card, &w->pool, w->slabs, w->hits, &w->uploader, e)))
        return rc;
    return w->start.trunk ? begin_trunk(w, c, m, start_msg->a, e) : 0;
}
static void beat(void *arg)
{
    struct worker_of_card *w = arg;

    atomic_fetch_add_explicit(&w->answers->heartbeat, 1, memory_order_relaxed);
    if (w->host)
        host_beat(w->host);
}
static void quit(void *arg)
{
    struct worker_of_card *w = arg;

    if (w->host)
        host_quit(w->host);
}
static void end(void *arg)
{
    struct worker_of_card *w = arg;

    host_close(w->host);
    own_close(w->own);
    uploader_stop(w->uploader);
    hits_close(w->hits);
    slabs_close(w->slabs);
    card_pass_close(w->pass);
    card_close(w->card);
}

int experts_run(const struct child *c, struct err *e)
{
    struct worker_of_card w = {0};
    struct process_more more = {&w, start, begin, beat, quit, end};

    return process_run(c, &more, e);
}
