/* The truth is the token list: what a host has in its memory can be made again from it. */
#define _GNU_SOURCE
#include "coordinator/supervise/trunk_host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shm/bell.h"
#include "shm/calls.h"

#define STEP_SPIN_NS 20000000u /* a step on a card is awaited by looks so long, before we sleep */
#define TICK_MS 20       /* between two looks at the host's life while a step is open */
#define LIFE_LOOK_US 1000 /* between two while a successor starts */

enum { TOLD = sizeof(struct answer_counters) / sizeof(_Atomic uint64_t) };
_Static_assert(sizeof(struct answer_counters) == TOLD * sizeof(_Atomic uint64_t), "nothing but counters");

struct trunk_host {
    struct trunk_host_config c;
    struct seg steps, answers, program;
    uint64_t first;       /* call of the host that starts next */
    struct trunk_host_counters count;
    uint64_t record;      /* last one published */
    uint64_t state;       /* version of the state that the host has */
    uint32_t *token;      /* by sequence and position: as they were asked for */
    int out;              /* the card was left out: there is no host any more */
    uint32_t *n;          /* by sequence: tokens that the executor's state has */
    struct step_token *replay;
    uint32_t n_replay;    /* most of a pass */
    _Atomic uint64_t now; /* record << 32 | its tokens */
    uint64_t answered_ns; /* the last answer was seen; 0: none */
    _Atomic uint64_t past[TOLD]; /* answers.count of the hosts that died */
};

static struct steps *steps_of(const struct trunk_host *h)
{
    return h->steps.base;
}
static struct answers *answers_of(const struct trunk_host *h)
{
    return h->answers.base;
}

void trunk_host_segs(struct trunk_host *h, struct worker_seg *s)
{
    s[0] = (struct worker_seg){&h->steps, 0};
    s[1] = (struct worker_seg){&h->answers, 1};
    s[2] = (struct worker_seg){&h->program, 0};
}
void trunk_host_says(const struct trunk_host *h, char *text, size_t n, uint64_t *calls)
{
    size_t at = (size_t)snprintf(text, n, " trunk=%llu team=%u", (unsigned long long)h->record, h->c.threads);

    for (uint32_t i = 0; i < h->c.threads && at < n; i++)
        at += (size_t)snprintf(text + at, n - at, "%s%d", i ? "," : ":", h->c.cpu[i]);
    *calls = h->first - 1;
}

int trunk_host_open(const struct trunk_host_config *c, struct trunk_host **out, struct err *e)
{
    struct trunk_host *h = calloc(1, sizeof *h);
    int rc;

    if (!h)
        return err_set(e, -ENOMEM, "no memory for the trunk's host");
    *out = h;
    h->c = *c;
    h->first = 1;
    h->steps.fd = h->answers.fd = h->program.fd = -1;
    h->n_replay = c->geo->step_tokens;
    h->token = malloc((size_t)c->geo->n_seqs * c->geo->n_ctx * sizeof *h->token);
    h->n = calloc(c->geo->n_seqs, sizeof *h->n);
    h->replay = malloc(h->n_replay * sizeof *h->replay);
    if (!h->token || !h->n || !h->replay)
        return err_set(e, -ENOMEM, "no memory for the lists of %u tokens", c->geo->n_ctx);
    if ((rc = seg_create(SEG_STEPS, 0, steps_bytes(c->geo), -1, &h->steps, e)) ||
        (rc = seg_create(SEG_ANSWERS, 0, answers_bytes(c->geo), -1, &h->answers, e)) ||
        (rc = seg_create(SEG_PROGRAM, 0, wire_bytes(c->prog), -1, &h->program, e)))
        return rc;
    wire_write(c->prog, c->at, c->kv, h->program.base);
    return 0;
}

void trunk_host_close(struct trunk_host *h)
{
    if (!h)
        return;
    seg_close(&h->steps);
    seg_close(&h->answers);
    seg_close(&h->program);
    free(h->token);
    free(h->n);
    free(h->replay);
    free(h);
}

uint64_t trunk_host_next_call(const struct trunk_host *h)
{
    return h->first;
}
const _Atomic uint64_t *trunk_host_word(const struct trunk_host *h)
{
    return &steps_of(h)->word;
}
const struct trunk_host_counters *trunk_host_counters(const struct trunk_host *h)
{
    return &h->count;
}
struct answers *trunk_host_answers(const struct trunk_host *h)
{
    return answers_of(h);
}
static _Atomic uint64_t *told(const struct trunk_host *h)
{
    return (_Atomic uint64_t *)&answers_of(h)->count;
}
void trunk_host_told(const struct trunk_host *h, struct answer_counters *sum)
{
    for (int i = 0; i < TOLD; i++)
        atomic_init((_Atomic uint64_t *)sum + i, atomic_load_explicit(&h->past[i], memory_order_relaxed) +
                                                     atomic_load_explicit(told(h) + i, memory_order_relaxed));
}
/* The host is reaped, and its successor has not begun to write. */
static void keep_told(struct trunk_host *h)
{
    for (int i = 0; i < TOLD; i++)
        atomic_fetch_add_explicit(&h->past[i], atomic_exchange_explicit(told(h) + i, 0, memory_order_relaxed),
                                  memory_order_relaxed);
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

/* Waits for the record's answer. 0: it is there; 1: the host is reaped and no answer will come. */
static int wait_answer(struct trunk_host *h)
{
    uint32_t round = 0;

    uint64_t until = h->c.open ? now_ns() + STEP_SPIN_NS : 0; /* a card's step is short, and so is what comes after it */

    while (!step_answered(answers_of(h), h->record)) {
        if (wait_round(&round, 1) || (until && now_ns() < until))
            continue;
        round = 0;
        bell_sleep(&h->c.bells[PROC_MAIN], &h->c.board->asleep_main, look, h, TICK_MS);
        if (life_turn(h->c.life) != LIFE_UP) /* once more, now that it is quiet */
            return !step_answered(answers_of(h), h->record);
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
static int play(struct trunk_host *h, const struct step *s)
{
    struct step_record r = {.seq = ++h->record,
                            .state_in = h->state,
                            .state_out = h->state + 1,
                            .n_tokens = s->n_tokens,
                            .n_out = s->n_out,
                            .best_only = s->best_only != 0,
                            .pass = s->pass};

    if (h->c.rows) {
        struct step_rows rows;
        h->c.rows(h->c.rows_arg, s, &rows);
        step_put_rows(h->c.geo, steps_of(h), rows.bytes, s->n_tokens);
    }
    if (s->pass == STEP_TRUNK) /* uses are counted by its steps */
        atomic_store_explicit(&h->now, r.seq << 32 | s->n_tokens, memory_order_release);
    if (h->answered_ns && s->n_tokens == 1 && s->pass == STEP_TRUNK) {
        h->count.chosen_ns += now_ns() - h->answered_ns;
        h->count.chosen++;
    }
    step_publish(h->c.geo, steps_of(h), &r, s->token, s->out);
    bell_ring(&h->c.bells[PROC_TRUNK], &h->c.calls->asleep);
    set_open(h, 1);
    int lost = wait_answer(h);
    h->answered_ns = now_ns();
    set_open(h, 0);
    if (lost)
        return -1;
    h->state++;
    if (s->pass == STEP_TRUNK)
        trunk_host_did(h, s);
    return 0;
}

/* ---- what a new executor has not seen ---- */

static uint32_t *tokens_of(const struct trunk_host *h, uint32_t seq)
{
    return h->token + (size_t)seq * h->c.geo->n_ctx;
}

void trunk_host_did(struct trunk_host *h, const struct step *s)
{
    for (uint32_t i = 0; i < s->n_tokens; i++) {
        const struct step_token *t = &s->token[i];
        tokens_of(h, t->seq)[t->pos] = t->id;
        h->n[t->seq] = t->pos + 1;
    }
}

int trunk_host_owed(struct trunk_host *h, const struct step *s, struct step *m)
{
    *m = (struct step){.token = h->replay};
    for (uint32_t i = 0; i < s->n_tokens && !m->n_tokens; i++) {
        uint32_t seq = s->token[i].seq;
        if (i && seq == s->token[i - 1].seq) /* its first one says where it goes on */
            continue;
        for (uint32_t at = h->n[seq]; at < s->token[i].pos && m->n_tokens < h->n_replay; at++)
            h->replay[m->n_tokens++] = (struct step_token){tokens_of(h, seq)[at], at, seq};
    }
    h->count.replayed += m->n_tokens;
    return m->n_tokens > 0;
}

/* ---- a successor ---- */

/* Tokens that the step stands on. */
static uint64_t behind(const struct step *s)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < s->n_tokens; i++)
        if (!i || s->token[i].seq != s->token[i - 1].seq)
            n += s->token[i].pos;
    return n;
}

/* The host is reaped. Another one, with nothing in its memory. 0: it follows; -1: there will be none. */
static int succeed(struct trunk_host *h, uint64_t again)
{
    struct life *l = h->c.life;
    uint32_t open, up = atomic_load(&l->last_up);
    enum life_turn turn;

    keep_told(h);
    h->first = calls_bury(h->c.geo, h->c.calls, &open);
    h->count.retired += open;
    atomic_store_explicit(&answers_of(h)->ringing, 0, memory_order_relaxed);
    h->state = 0;
    memset(h->n, 0, h->c.geo->n_seqs * sizeof *h->n);
    while ((turn = life_turn(l)) != LIFE_UP && turn != LIFE_OUT) {
        if (atomic_load(&l->buried) <= up) {
            atomic_store(&l->buried, up + 1);
            bell_ring(&h->c.bells[PROC_STEWARD], &h->c.board->asleep_steward); /* no open call names it any more */
            watch_wake(*h->c.watch);
        }
        usleep(LIFE_LOOK_US);
        up = atomic_load(&l->last_up); /* one that was up, but died before we saw it, has published nothing */
    }
    /* each a line written at once: the steward's thread writes lines, too */
    if (turn == LIFE_OUT) {
        fprintf(stderr, "conclave: %s: %u open call%s retired, the trunk is executed here from call %llu on, %llu tokens are "
                        "played again\n",
                l->name, open, open == 1 ? "" : "s", (unsigned long long)h->first, (unsigned long long)again);
        h->out = 1;
        return -1;
    }
    h->count.successors++;
    fprintf(stderr, "conclave: %s: %u open call%s retired, pid %d goes on with call %llu, %llu tokens are played again\n",
            l->name, open, open == 1 ? "" : "s", l->pid, (unsigned long long)h->first, (unsigned long long)again);
    return 0;
}

const float *trunk_host_step(struct trunk_host *h, const struct step *s)
{
    struct step m;
    int lost = h->out;

    if (lost)
        return NULL;
    do {
        while (trunk_host_owed(h, s, &m))
            if (play(h, &m) && succeed(h, behind(s)))
                return NULL;
    } while (play(h, s) && !(lost = succeed(h, behind(s))));
    return lost ? NULL : answer_logits(answers_of(h));
}

/* ---- what is no step of the trunk ---- */

/* 0: done; -1: the host died over it, and what it was about is gone. A sequence's tokens are played again before its
 * next step, as ever. */
static int once(struct trunk_host *h, const struct step *s)
{
    uint64_t n = h->n[s->token[0].seq];

    if (!h->out && !play(h, s))
        return 0;
    if (!h->out)
        succeed(h, n);
    return -1;
}

const float *trunk_host_draft(struct trunk_host *h, const struct step *s)
{
    return once(h, s) ? NULL : answer_logits(answers_of(h));
}

int trunk_host_save(struct trunk_host *h, uint32_t seq, uint32_t pos, uint32_t slot)
{
    const struct step_token t = {slot, pos, seq};
    const struct step s = {.n_tokens = 1, .token = &t, .pass = STEP_SAVE};

    return h->n[seq] < pos ? -1 : once(h, &s);
}

int trunk_host_restore(struct trunk_host *h, uint32_t seq, uint32_t pos, uint32_t slot)
{
    const struct step_token t = {slot, pos, seq};
    const struct step s = {.n_tokens = 1, .token = &t, .pass = STEP_RESTORE};
    int rc = once(h, &s);

    h->n[seq] = rc ? 0 : pos;
    return rc;
}

void trunk_host_forget(struct trunk_host *h, uint32_t seq)
{
    h->n[seq] = 0;
}
void trunk_host_keeps(struct trunk_host *h, uint32_t seq, uint32_t pos)
{
    h->n[seq] = pos;
}
uint32_t trunk_host_has(const struct trunk_host *h, uint32_t seq)
{
    return h->n[seq];
}

const uint32_t *trunk_host_best(const struct trunk_host *h)
{
    struct answers *a = answers_of(h);

    /* written before the answer, which we have seen */
    return atomic_load_explicit(&a->best_of, memory_order_relaxed) == h->record ? (const uint32_t *)answer_best(h->c.geo, a)
                                                                                : NULL;
}
