/* The truth is the token list: what a host has in its memory can be made again from it. */
#define _GNU_SOURCE
#include "coordinator/supervise/trunk_host.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/bell.h"
#include "shm/calls.h"

#define TICK_MS 20       /* between two looks at the host's life while a step is open */
#define STUCK_TICKS 250  /* without a beat: the host hangs. Our own ticks, so that a slow machine kills nobody */
#define MOST_TRIES 5     /* of one step */

struct trunk_host {
    struct trunk_host_config c;
    struct seg steps, answers, program;
    struct worker w;
    uint32_t life;        /* of the present host: which of the card's workers it is */
    uint64_t record;      /* last one published */
    uint64_t state;       /* version of the state that the host has */
    uint32_t *token;      /* by position: the sequence so far, as the host's state has it */
    uint32_t n;
    struct step_token *replay;
    uint32_t n_replay;    /* most of a pass */
    uint64_t beat;
    uint32_t silent;      /* ticks since the last beat */
    _Atomic uint64_t now; /* record << 32 | its tokens */
};

static struct steps *steps_of(const struct trunk_host *h)
{
    return h->steps.base;
}
static struct answers *answers_of(const struct trunk_host *h)
{
    return h->answers.base;
}

static uint32_t outbox_of(const struct trunk_host *h)
{
    return card_outbox(h->c.card, h->life);
}

/* first: number of its first call. */
static int start(struct trunk_host *h, uint64_t first, struct err *e)
{
    struct worker_seg s[CHILD_SEGS];
    char text[CTL_TEXT];
    size_t n = h->c.segs(h->c.arg, outbox_of(h), s), at;
    int rc;

    assert(n <= TRUNK_HOST_SEGS);
    s[n++] = (struct worker_seg){&h->steps, 0};
    s[n++] = (struct worker_seg){&h->answers, 1};
    s[n++] = (struct worker_seg){&h->program, 0};
    rc = spawn_worker("conclave-gpu", h->c.name, outbox_of(h), s, n, &h->w, e);
    if (rc)
        return rc;
    at = (size_t)snprintf(text, sizeof text, "card=%u device=%s trunk=%llu team=%u", h->c.card, h->c.device,
                          (unsigned long long)h->record, h->c.threads);
    for (uint32_t i = 0; i < h->c.threads && at < sizeof text; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%d", i ? "," : ":", h->c.cpu[i]);
    if (at < sizeof text)
        snprintf(text + at, sizeof text - at, " threads=%u cpus=- shared=1", h->c.expert_threads);
    struct ctl_msg m = {.kind = CTL_START,
                        .a = first - 1,
                        .b = atomic_load_explicit(&h->c.amends->head, memory_order_acquire)};
    snprintf(m.text, sizeof m.text, "%s", text);
    ctl_send(h->w.ctl, &m, -1); /* it has gone: its last words follow */
    rc = spawn_wait_ready(&h->w, e);
    if (rc) {
        spawn_kill(&h->w);
        return rc;
    }
    struct board_proc *p = &h->c.board->proc[outbox_of(h)];
    atomic_store(&p->pid, (uint32_t)h->w.pid);
    atomic_store(&p->role, 3);
    atomic_store(&p->alive, 1);
    h->silent = 0;
    return 0;
}

int trunk_host_open(const struct trunk_host_config *c, struct trunk_host **out, struct err *e)
{
    struct trunk_host *h = calloc(1, sizeof *h);
    int rc;

    if (!h)
        return err_set(e, -ENOMEM, "no memory for the trunk's host");
    *out = h;
    h->c = *c;
    h->w = (struct worker){.pidfd = -1, .ctl = -1};
    h->steps.fd = h->answers.fd = h->program.fd = -1;
    h->n_replay = c->geo->step_tokens;
    h->token = malloc((size_t)c->geo->n_ctx * sizeof *h->token);
    h->replay = malloc(h->n_replay * sizeof *h->replay);
    if (!h->token || !h->replay)
        return err_set(e, -ENOMEM, "no memory for the list of %u tokens", c->geo->n_ctx);
    if ((rc = seg_create(SEG_STEPS, 0, steps_bytes(c->geo), -1, &h->steps, e)) ||
        (rc = seg_create(SEG_ANSWERS, 0, answers_bytes(c->geo), -1, &h->answers, e)) ||
        (rc = seg_create(SEG_PROGRAM, 0, wire_bytes(c->prog), -1, &h->program, e)))
        return rc;
    wire_write(c->prog, c->at, c->kv, h->program.base);
    return start(h, 1, e);
}

void trunk_host_close(struct trunk_host *h)
{
    if (!h)
        return;
    spawn_end(&h->w, 1);
    seg_close(&h->steps);
    seg_close(&h->answers);
    seg_close(&h->program);
    free(h->token);
    free(h->replay);
    free(h);
}

const struct worker *trunk_host_worker(const struct trunk_host *h)
{
    return &h->w;
}
struct answers *trunk_host_answers(const struct trunk_host *h)
{
    return answers_of(h);
}
uint32_t trunk_host_tokens(const struct trunk_host *h, uint64_t *seq)
{
    uint64_t now = atomic_load_explicit(&h->now, memory_order_acquire);

    *seq = now >> 32;
    return (uint32_t)now;
}

/* ---- one record ---- */

static int look(void *arg)
{
    struct trunk_host *h = arg;
    struct answers *a = answers_of(h);

    if (!step_answered(a, h->record))
        return LOOK_NOTHING;
    return atomic_load_explicit(&a->ringing, memory_order_acquire) & 1 ? LOOK_FOUND : LOOK_RUNG;
}

/* Its lines; *text: why it ends, if it said so. */
static void hear(struct trunk_host *h, char *text, size_t n)
{
    struct ctl_msg m;
    int fd;

    while (h->w.ctl >= 0 && ctl_recv(h->w.ctl, &m, &fd, 0) > 0) {
        if (fd >= 0)
            close(fd);
        if (m.kind == CTL_ERROR)
            snprintf(text, n, ": %s", m.text);
        if (m.kind == CTL_LOG && (m.a <= 1 || h->c.verbose))
            fprintf(stderr, "conclave: %s: %s\n", h->w.name, m.text);
    }
}

/* Reaps the host if it has died, or if it hangs. 1: it is gone, how says why. */
static int gone(struct trunk_host *h, char *how, size_t n)
{
    uint64_t beat = atomic_load_explicit(&answers_of(h)->heartbeat, memory_order_relaxed);
    int status, hangs;

    h->silent = beat == h->beat ? h->silent + 1 : 0;
    h->beat = beat;
    hangs = h->silent > STUCK_TICKS;
    if (hangs)
        kill(h->w.pid, SIGKILL);
    if (waitpid(h->w.pid, &status, hangs ? 0 : WNOHANG) != h->w.pid)
        return 0;
    if (hangs)
        snprintf(how, n, "gave no sign of life and was killed");
    else
        spawn_how_it_ended(status, how, n);
    return 1;
}

/* Waits for the record's answer. 0: it is there; 1: the host is reaped and no answer will come. */
static int wait_answer(struct trunk_host *h, char *how, size_t n)
{
    uint32_t round = 0;

    while (!step_answered(answers_of(h), h->record)) {
        if (wait_round(&round, 1))
            continue;
        round = 0;
        bell_sleep(&h->c.bells[PROC_MAIN], &h->c.board->asleep_main, look, h, TICK_MS);
        if (!step_answered(answers_of(h), h->record) && gone(h, how, n))
            return !step_answered(answers_of(h), h->record); /* once more, now that it is quiet */
    }
    return 0;
}

/* A step begins or has ended: the steward looks at the call ring by itself meanwhile. */
static void set_open(struct trunk_host *h, uint32_t open)
{
    if (!h->c.open)
        return;
    atomic_store_explicit(h->c.open, open, memory_order_release);
    if (open)
        bell_ring(&h->c.bells[PROC_STEWARD], &h->c.board->asleep_steward);
}

/* Publishes and waits. 0: answered, committed. */
static int play(struct trunk_host *h, const struct step *s, char *how, size_t n)
{
    struct step_record r = {.seq = ++h->record,
                            .state_in = h->state,
                            .state_out = h->state + 1,
                            .n_tokens = s->n_tokens,
                            .n_out = s->n_out};

    atomic_store_explicit(&h->now, r.seq << 32 | s->n_tokens, memory_order_release);
    step_publish(h->c.geo, steps_of(h), &r, s->token, s->out);
    bell_ring(&h->c.bells[PROC_TRUNK], &h->c.calls->asleep);
    set_open(h, 1);
    int lost = wait_answer(h, how, n);
    set_open(h, 0);
    if (lost)
        return -1;
    h->state++;
    for (uint32_t i = 0; i < s->n_tokens; i++)
        h->token[s->token[i].pos] = s->token[i].id;
    return 0;
}

/* ---- a successor ---- */

static int replay(struct trunk_host *h, char *how, size_t n)
{
    for (uint32_t at = 0; at < h->n;) {
        uint32_t k = 0;
        for (; k < h->n_replay && at < h->n; k++, at++)
            h->replay[k] = (struct step_token){h->token[at], at, 0};
        struct step s = {.n_tokens = k, .token = h->replay};
        if (play(h, &s, how, n))
            return -1;
    }
    return 0;
}

/* The host is reaped. Another one, with nothing in its memory. */
static void succeed(struct trunk_host *h, const char *how)
{
    char text[CTL_TEXT + 8] = "";
    int pid = (int)h->w.pid;
    uint32_t open;
    uint64_t first;
    struct err e = {0};

    hear(h, text, sizeof text);
    atomic_store(&h->c.board->proc[outbox_of(h)].alive, 0);
    h->w.pid = 0;
    spawn_kill(&h->w); /* its descriptors */
    first = calls_bury(h->c.geo, h->c.calls, &open);
    h->c.lost(h->c.arg);
    atomic_store_explicit(&answers_of(h)->ringing, 0, memory_order_relaxed);
    h->state = 0;
    if (++h->life >= CARD_LIVES)
        watch_fatal(*h->c.watch, "%s: no numbers are left for another worker", h->c.name);
    if (start(h, first, &e))
        watch_fatal(*h->c.watch, "%s (pid %d) %s%s; another cannot start: %s", h->c.name, pid, how, text, e.msg);
    h->c.back(h->c.arg, outbox_of(h));
    fprintf(stderr,
            "conclave: %s (pid %d) %s%s; %u open call%s retired, pid %d goes on with call %llu, %u "
            "tokens are played again\n",
            h->c.name, pid, how, text, open, open == 1 ? "" : "s", (int)h->w.pid, (unsigned long long)first, h->n);
}

const float *trunk_host_step(struct trunk_host *h, const struct step *s)
{
    char how[80] = "ended", text[8];
    int tries = 0;

    hear(h, text, sizeof text);
    h->n = s->token[0].pos; /* what the state must hold: later positions are written again */
    while (play(h, s, how, sizeof how)) {
        do {
            if (++tries == MOST_TRIES)
                watch_fatal(*h->c.watch, "%s %s; a step failed %d times, the run ends", h->c.name, how, tries);
            succeed(h, how);
        } while (replay(h, how, sizeof how));
    }
    return answer_logits(answers_of(h));
}
