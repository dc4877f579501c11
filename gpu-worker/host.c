/* No architecture is known here: what comes is a list of operations (coordinator/trunk/exec/wire.h), and numbers. Nothing
 * is kept that the coordinator could not give to another process. */
#include "gpu-worker/host.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu-worker/card.h"
#include "gpu-worker/trunk_card.h"
#include "shm/bell.h"
#include "shm/fault.h"
#include "shm/steps.h"
#include "coordinator/trunk/exec/exec.h"
#include "coordinator/trunk/exec/moe.h"
#include "coordinator/trunk/exec/wire.h"

#define LOOKS 8 /* at a step's answer, between two yields */
#define CALL_MOST_MS 600000 /* a prompt's experts may all come from a slow disk; who is late is the steward's to say */

struct host {
    struct host_config c;
    struct err e;
    struct geometry g;
    struct board *board;
    struct bell *bells;
    struct calls *calls;
    struct steps *steps;
    struct answers *answers;
    struct outbox *box[MAX_PROCS];
    struct program *prog;
    struct weight_at *at;
    struct weights weights;
    struct moe *moe; /* these two, or */
    struct exec *exec;
    struct trunk_card *trunk; /* ... this */
    uint64_t behind, state; /* last record; the state's version */
    struct step_token *token;
    uint32_t *out;
    uint8_t *rows; /* looked-up ones of the step's tokens; NULL: the program has no tables */
    uint64_t n_steps, n_tokens, step_ns, sleeps, net_finds;
    uint64_t answered_ns, taken_ns, gap_asked_ns, gap_launch_ns;
    uint64_t seen_ns, gap_ns, gaps; /* the last step's end on a card; as answer_counters */
    pthread_t thread;
    int started;
    _Atomic int quit;
};

/* The segment's payload, refused if it is missing or smaller than need. *bytes may be NULL. */
static void *take(const struct child *c, enum seg_role role, uint32_t index, uint64_t need, uint64_t *bytes,
                  struct err *e)
{
    for (size_t i = 0; i < c->n_segs; i++) {
        const struct seg *s = &c->seg[i];
        if (s->role != role || s->index != index)
            continue;
        if (bytes)
            *bytes = s->bytes;
        if (s->bytes >= need)
            return s->base;
        err_set(e, -EPROTO, "segment %s.%u holds %llu bytes, wanted %llu", seg_role_name(role), index,
                (unsigned long long)s->bytes, (unsigned long long)need);
        return NULL;
    }
    err_set(e, -EPROTO, "segment %s.%u was not passed on", seg_role_name(role), index);
    return NULL;
}

static void rows_of_step(void *arg, const struct step *s, struct step_rows *out)
{
    (void)s;
    *out = (struct step_rows){.bytes = ((struct host *)arg)->rows};
}

static int open_on_team(struct host *h, const struct moe_config *mc, enum kv_type kv, struct err *e)
{
    struct exec_config xc = {.prog = h->prog,
                             .weight = h->weights.at,
                             .max_tokens = h->g.step_tokens,
                             .max_out = h->g.step_out,
                             .n_ctx = h->g.n_ctx,
                             .n_seqs = h->g.n_seqs,
                             .n_saved = h->g.n_saved,
                             .kv = kv,
                             .rows = rows_of_step,
                             .rows_arg = h};
    int rc = moe_open(mc, &h->moe, e);

    xc.moe = h->moe;
    return rc ? rc : exec_open(&xc, &h->exec, e);
}

static int open_on_card(struct host *h, const struct moe_config *mc, enum kv_type kv, struct err *e)
{
    const struct maps *m = h->c.maps;
    struct trunk_card_config c = {.card = h->c.card,
                                  .geo = &h->g,
                                  .prog = h->prog,
                                  .weight = h->weights.at,
                                  .kv = kv,
                                  .calls = h->calls,
                                  .acts = mc->acts,
                                  .amends = mc->amends,
                                  .tables = mc->tables,
                                  .answers = h->answers,
                                  .outbox = mc->outbox,
                                  .n_cards = mc->n_cards,
                                  .pool = m->pool,
                                  .slot0 = m->slot0,
                                  .n_slots = m->n_slots,
                                  .first = mc->first,
                                  .limit_ms = CALL_MOST_MS,
                                  .rows = rows_of_step,
                                  .rows_arg = h};
    uint8_t *vector = calloc(h->prog->n_weights + 1, 1);
    int rc;

    if (!vector)
        return err_set(e, -ENOMEM, "no memory");
    for (uint32_t i = 0; i < h->prog->n_weights; i++)
        vector[i] = h->at[i].vector != 0;
    c.vector = vector;
    memcpy(c.owner, mc->owner, sizeof c.owner);
    memcpy(c.card_slot0, mc->card_slot0, sizeof c.card_slot0);
    take(h->c.child, SEG_TABLES, 0, 0, &c.tables_bytes, e);
    rc = trunk_card_open(&c, &h->trunk, e);
    free(vector);
    return rc;
}

static int open_executor(struct host *h, const struct moe_config *mc, const uint8_t *trunk, struct err *e)
{
    uint64_t image_bytes, trunk_bytes;
    const uint8_t *image = take(h->c.child, SEG_PROGRAM, 0, 1, &image_bytes, e);
    enum kv_type kv;
    int rc;

    if (!image || !take(h->c.child, SEG_TRUNK, 0, 0, &trunk_bytes, e))
        return e->code;
    if ((rc = wire_read(image, image_bytes, trunk_bytes, &h->g, &h->prog, &h->at, &kv, e)) ||
        (rc = weights_open(h->prog, trunk, h->at, &h->weights, e)))
        return rc;
    return h->c.card && card_real(h->c.card) ? open_on_card(h, mc, kv, e) : open_on_team(h, mc, kv, e);
}

/* Where each card's slots begin: they lie card after card. */
static void find_cards(const struct host *h, struct moe_config *mc)
{
    for (uint32_t i = 0; i < h->g.n_slots; i++) {
        uint32_t card = table_slot(mc->tables, i)->card;
        if (card == mc->n_cards && card < MAX_CARDS)
            mc->card_slot0[mc->n_cards++] = i;
    }
}

static int take_outboxes(struct host *h, struct moe_config *mc, struct err *e)
{
    const struct child *c = h->c.child;

    for (size_t i = 0; i < c->n_segs; i++)
        if (c->seg[i].role == SEG_OUTBOX && c->seg[i].index < MAX_PROCS) {
            struct outbox *box = take(c, SEG_OUTBOX, c->seg[i].index, outbox_bytes(&h->g), NULL, e);
            if (!box)
                return e->code;
            outbox_put(h->box, c->seg[i].index, box);
        }
    for (uint32_t k = 0; k < h->g.n_nodes; k++) { /* a node's worker: its outbox carries the node's number */
        mc->owner[k] = PROC_FIRST_WORKER + k;
        if (!h->box[mc->owner[k]])
            return err_set(e, -EPROTO, "node %u has no outbox", k);
    }
    mc->outbox = h->box;
    return 0;
}

int host_open(const struct host_config *config, struct host **out, struct err *e)
{
    const struct child *c = config->child;
    struct host *h = calloc(1, sizeof *h);
    struct moe_config mc = {.first = config->first, .rings = 0, .shared = 1, .own = config->own, .timeline = c->timeline,
                             .lane = TIMELINE_TRUNK};
    const uint8_t *trunk;
    int rc;

    if (!h)
        return err_set(e, -ENOMEM, "no memory");
    *out = h;
    h->c = *config;
    h->behind = config->start->record;
    h->g = config->maps->g;
    h->board = config->maps->board;
    mc.tables = config->maps->tables;
    if (!(h->bells = take(c, SEG_BELLS, 0, MAX_PROCS * sizeof(struct bell), NULL, e)) ||
        !(h->calls = take(c, SEG_CALLS, 0, calls_bytes(&h->g), NULL, e)) ||
        !(h->steps = take(c, SEG_STEPS, 0, steps_bytes(&h->g), NULL, e)) ||
        !(h->answers = take(c, SEG_ANSWERS, 0, answers_bytes(&h->g), NULL, e)) ||
        !(mc.acts = take(c, SEG_ACTS, 0, CALLS_IN_FLIGHT * h->g.acts_half, NULL, e)) ||
        !(mc.amends = take(c, SEG_AMENDS, 0, amends_bytes(&h->g), NULL, e)) ||
        !(trunk = take(c, SEG_TRUNK, 0, 1, NULL, e)))
        return e->code;
    if ((rc = take_outboxes(h, &mc, e)))
        return rc;
    find_cards(h, &mc);
    mc.geo = &h->g;
    mc.board = h->board;
    mc.calls = h->calls;
    mc.bells = h->bells;
    h->token = calloc(h->g.step_tokens, sizeof *h->token);
    h->out = calloc(h->g.step_out, sizeof *h->out);
    if (h->g.token_bytes)
        h->rows = calloc(h->g.step_tokens, h->g.token_bytes);
    if (!h->token || !h->out || (h->g.token_bytes && !h->rows))
        return err_set(e, -ENOMEM, "no memory for a step of %u tokens", h->g.step_tokens);
    return open_executor(h, &mc, trunk, e);
}

void host_close(struct host *h)
{
    if (!h)
        return;
    if (h->started) {
        host_quit(h);
        pthread_join(h->thread, NULL);
    }
    trunk_card_close(h->trunk);
    exec_close(h->exec);
    moe_close(h->moe);
    weights_close(&h->weights);
    program_free(h->prog);
    free(h->at);
    free(h->token);
    free(h->out);
    free(h->rows);
    free(h);
}

void host_quit(struct host *h)
{
    atomic_store_explicit(&h->quit, 1, memory_order_release);
    if (h->trunk) /* whom a step waits for may have gone already */
        trunk_card_stop(h->trunk);
    bell_wake(&h->bells[PROC_TRUNK]);
}
void host_beat(struct host *h)
{
    atomic_fetch_add_explicit(&h->answers->heartbeat, 1, memory_order_relaxed);
}

/* ---- steps ---- */

static int quits(const struct host *h)
{
    return atomic_load_explicit(&h->quit, memory_order_acquire);
}
static int look(void *arg)
{
    struct host *h = arg;

    return quits(h) || step_there(h->steps, h->behind) ? LOOK_FOUND : LOOK_NOTHING;
}

/* calls, items and waits since the start */
static struct moe_counters counters(const struct host *h)
{
    struct trunk_card_counters c;

    if (!h->trunk)
        return *moe_counters(h->moe);
    trunk_card_counters(h->trunk, &c);
    return (struct moe_counters){.calls = c.calls,
                                 .items = c.items,
                                 .disk_items = c.disk_items,
                                 .card_items = c.card_items,
                                 .own_items = c.own_items,
                                 .wait_ns = c.wait_ns};
}

static void tell(struct host *h)
{
    struct answer_counters *a = &h->answers->count;
    const struct moe_counters m = counters(h);
    const struct {
        _Atomic uint64_t *to;
        uint64_t value;
    } all[] = {{&a->steps, h->n_steps}, {&a->tokens, h->n_tokens}, {&a->calls, m.calls},
               {&a->items, m.items}, {&a->disk_items, m.disk_items}, {&a->card_items, m.card_items},
               {&a->own_items, m.own_items}, {&a->step_ns, h->step_ns},
               {&a->call_ns, m.call_ns}, {&a->wait_ns, m.wait_ns}, {&a->sleeps, m.sleeps + h->sleeps},
               {&a->net_finds, m.net_finds + h->net_finds}, {&a->gap_ns, h->gap_ns}, {&a->gaps, h->gaps},
               {&a->gap_asked_ns, h->gap_asked_ns}, {&a->gap_launch_ns, h->gap_launch_ns}};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        atomic_store_explicit(all[i].to, all[i].value, memory_order_relaxed);
}

/* The logits are in the answers' segment. */
static void answer(struct host *h, const struct step_record *r)
{
    tell(h);
    atomic_fetch_add_explicit(&h->answers->ringing, 1, memory_order_release);
    fault_pass(FAULT_ANSWER);
    step_answer(h->answers, r->seq);
    bell_ring(&h->bells[PROC_MAIN], &h->board->asleep_main);
    atomic_fetch_add_explicit(&h->answers->ringing, 1, memory_order_release);
}

/* Own hits of the step that has ended: no call told of them. */
static void note_own(struct host *h, const struct step *s)
{
    _Atomic uint32_t *uses = answer_uses(&h->g, h->answers);

    for (uint32_t l = 0; l < h->g.n_layers; l++) {
        uint32_t used;
        const uint32_t *id = trunk_card_choice(h->trunk, l, s->pass != STEP_TRUNK, &used);
        for (uint32_t i = 0; id && i < s->n_tokens * used; i++) {
            size_t at = (size_t)l * h->g.n_experts + id[i];
            if (hits_entry(h->c.hits, l, id[i]))
                atomic_store_explicit(&uses[at], atomic_load_explicit(&uses[at], memory_order_relaxed) + 1,
                                      memory_order_relaxed);
        }
    }
}

static int step_on_card(struct host *h, uint64_t number, const struct step *s)
{
    const struct timeline *t = &h->c.child->timeline;
    uint64_t traced = timeline_begin(t);
    const uint32_t *changed;
    uint32_t round = 0;
    size_t n;
    int rc;

    hits_begin(h->c.hits, &changed, &n);
    if (fault_due(FAULT_ERROR))
        trunk_card_break();
    rc = trunk_card_begin(h->trunk, s, changed, n, hits_entries(h->c.hits), &h->e);
    if (h->seen_ns && s->n_tokens == 1 && s->pass == STEP_TRUNK) {
        uint64_t now = now_ns();
        h->gap_ns += now - h->seen_ns;
        h->gap_asked_ns += h->taken_ns - h->answered_ns;
        h->gap_launch_ns += now - h->taken_ns;
        h->gaps++;
    }
    fault_pass(FAULT_STEP);
    timeline_end(t, TIMELINE_TRUNK, TIMELINE_LAUNCH, traced, number, s->n_tokens, 0);
    traced = timeline_begin(t);
    while (!rc)
        if (!(rc = trunk_card_poll(h->trunk, &h->e)) && ++round % LOOKS == 0)
            sched_yield(); /* a thread that looks where others want to look, or workers to work */
    timeline_end(t, TIMELINE_TRUNK, TIMELINE_ANSWER, traced, number, s->n_tokens, 0);
    h->seen_ns = s->pass == STEP_TRUNK ? now_ns() : 0;
    if (rc > 0) {
        const uint32_t *best = trunk_card_best(h->trunk);
        for (uint32_t i = 0; i < s->n_out; i++)
            atomic_store_explicit(&answer_best(&h->g, h->answers)[i], best[i], memory_order_relaxed);
        atomic_store_explicit(&h->answers->best_of, number, memory_order_relaxed);
        note_own(h, s);
    }
    return rc;
}

static int step_on_team(struct host *h, struct team *t, const struct step *s)
{
    const float *logits;

    hits_begin(h->c.hits, NULL, NULL);
    fault_pass(FAULT_STEP);
    if (fault_due(FAULT_ERROR))
        return err_set(&h->e, -EIO, "an error was asked for (CONCLAVE_DIE)");
    logits = exec_step(h->exec, t, s);
    if (s->n_out && fault_due(FAULT_LOGITS)) {
        memcpy(answer_logits(h->answers), logits, h->g.n_vocab / 2 * sizeof *logits);
        fault_die();
    }
    if (s->n_out)
        memcpy(answer_logits(h->answers), logits, (size_t)s->n_out * h->g.n_vocab * sizeof *logits);
    return 1;
}

/* STEP_SAVE, STEP_RESTORE */
static int keep_state(struct host *h, const struct step_record *r, const struct step_token *t)
{
    int rc = 0;

    if (h->trunk)
        rc = r->pass == STEP_SAVE ? trunk_card_save(h->trunk, t->seq, t->pos, t->id, &h->e)
                                  : trunk_card_restore(h->trunk, t->id, &h->e);
    else if (r->pass == STEP_SAVE)
        exec_save(h->exec, t->seq, t->pos, t->id);
    else
        exec_restore(h->exec, t->id);
    return rc ? rc : 1;
}

static int make_step(struct host *h, struct team *t, const struct step_record *r)
{
    struct step s = {.n_tokens = r->n_tokens, .n_out = r->n_out, .token = h->token, .out = h->out,
                     .pass = (enum step_pass)r->pass, .best_only = (int)r->best_only};

    if (r->pass >= STEP_SAVE)
        return keep_state(h, r, h->token);
    if (r->pass != STEP_TRUNK && h->prog->draft_at == h->prog->n_ops)
        return err_set(&h->e, -EPROTO, "step %llu is one of a NextN block, and the program has none",
                       (unsigned long long)r->seq);
    return h->trunk ? step_on_card(h, r->seq, &s) : step_on_team(h, t, &s);
}

static int work(struct host *h, struct team *t)
{
    struct step_record r;
    uint64_t start = now_ns();
    int rc = step_take(&h->g, h->steps, h->behind, &r, h->token, h->out, &h->e);

    if (rc <= 0)
        return rc;
    if (h->rows)
        step_take_rows(&h->g, h->steps, h->rows, r.n_tokens);
    h->taken_ns = now_ns();
    h->behind = r.seq;
    fault_work();
    if (r.state_in != h->state)
        return err_set(&h->e, -EPROTO, "step %llu begins with state %llu, here is %llu",
                       (unsigned long long)r.seq, (unsigned long long)r.state_in,
                       (unsigned long long)h->state);
    rc = make_step(h, t, &r);
    if (rc < 0)
        return quits(h) ? 0 : rc;
    if (r.pass < STEP_SAVE && hits_end(h->c.hits))
        uploader_ring(h->c.uploader);
    h->state = r.state_out;
    h->n_steps++;
    h->n_tokens += r.n_tokens;
    h->step_ns += now_ns() - start;
    timeline_end(&h->c.child->timeline, TIMELINE_TRUNK, TIMELINE_HOSTED, start, r.seq, r.n_tokens, 0);
    answer(h, &r);
    h->answered_ns = now_ns();
    return 1;
}

static int lead(void *arg, struct team *t)
{
    struct host *h = arg;
    uint32_t round = 0;

    if (h->trunk && card_use(h->c.card, &h->e))
        return h->e.code;
    while (!quits(h)) {
        int rc = work(h, t);
        if (rc < 0)
            return rc;
        if (rc) {
            round = 0;
        } else if (!wait_round(&round, team_shared(t))) {
            h->sleeps++;
            if (bell_sleep(&h->bells[PROC_TRUNK], &h->calls->asleep, look, h, 0) == BELL_NET)
                h->net_finds++;
            round = 0;
        }
    }
    return 0;
}

static void *run(void *arg)
{
    struct host *h = arg;
    const struct card_start *s = h->c.start;

    if (!team_run(h->trunk ? 1 : (int)s->team, s->cpu, 1, lead, h))
        return NULL;
    ctl_sendf(h->c.child->ctl, CTL_ERROR, 0, "%s", h->e.msg);
    _exit(1); /* another takes over, with all of this process's work */
}

int host_start(struct host *h, struct err *e)
{
    int rc = -pthread_create(&h->thread, NULL, run, h);

    h->started = !rc;
    return rc ? err_set(e, rc, "cannot start a thread: %s", strerror(-rc)) : 0;
}
