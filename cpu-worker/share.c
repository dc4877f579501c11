/* Givings and their answers. What it must never do: answer a giving twice, or leave one without. */
#include "cpu-worker/share.h"

#include <stdlib.h>
#include <string.h>

static int new_copy(const struct geometry *g, struct call *c)
{
    c->items = calloc(g->max_items, sizeof *c->items);
    c->pairs = calloc(g->max_pairs, sizeof *c->pairs);
    return c->items && c->pairs ? 0 : -1;
}

int shares_init(struct shares *s, const struct maps *m, uint64_t calls, uint64_t amends,
                struct err *e)
{
    const struct geometry *g = &m->g;
    size_t per_call = (size_t)g->max_items * g->n_nodes;
    struct consumer_config config = {.geo = g,
                                     .board = m->board,
                                     .bells = m->bells,
                                     .calls = m->calls,
                                     .amends = m->amends,
                                     .box = m->out,
                                     .outbox = m->self,
                                     .call = calls,
                                     .amend = amends};
    int ok;

    memset(s, 0, sizeof *s);
    s->m = m;
    consumer_open(&config, &s->consumer);
    s->share = calloc(stamps_count(g), sizeof *s->share);
    s->pass.item = calloc(per_call, sizeof *s->pass.item);
    ok = s->share && s->pass.item && !new_copy(g, &s->spare);
    for (int i = 0; ok && i < (int)CALL_SLOTS; i++) {
        struct open_call *c = &s->call[i];
        c->open = calloc(per_call, sizeof *c->open);
        ok = c->open && !new_copy(g, &c->copy);
    }
    return ok ? 0 : err_set(e, -ENOMEM, "no memory for the shares of %u items", g->max_items);
}

void shares_drop(struct shares *s)
{
    for (int i = 0; i < (int)CALL_SLOTS; i++) {
        free(s->call[i].copy.items);
        free(s->call[i].copy.pairs);
        free(s->call[i].open);
    }
    free(s->spare.items);
    free(s->spare.pairs);
    free(s->share);
    free(s->pass.item);
    memset(s, 0, sizeof *s);
}

struct share *share_of(const struct shares *s, const struct open_call *c, uint32_t item, uint32_t k)
{
    uint64_t n = c->copy.head.seq;
    struct share *sh = &s->share[stamp_index(&s->m->g, n, item, k)];

    if (sh->call != n)
        *sh = (struct share){.call = n};
    return sh;
}

void shares_stamping(struct shares *s)
{
    if (!s->stamping)
        consumer_stamping(s->m->out);
    s->stamping = 1;
}

void share_answer(struct shares *s, struct open_call *c, uint32_t item, uint32_t k,
                  enum stamp_kind kind)
{
    const struct geometry *g = &s->m->g;
    struct outbox *out = s->m->out;
    struct share *sh = share_of(s, c, item, k);
    uint64_t n = c->copy.head.seq;

    shares_stamping(s);
    fault_pass(FAULT_ITEM);
    sh->state = SHARE_IDLE;
    sh->made |= kind == STAMP_DONE;
    if (kind == STAMP_DECLINED)
        counter_add(&out->count.declined, 1);
    if (sh->am) {
        item_stamp(g, out, n, item, k, sh->am, kind);
        if (kind == STAMP_DONE)
            counter_add(&out->count.amended, 1);
        sh->am = 0;
        s->ring_trunk = s->ring_steward = 1;
    }
    if (!sh->owes_call)
        return;
    sh->owes_call = 0;
    if (kind == STAMP_DECLINED) {
        c->declined = 1;
        item_stamp(g, out, n, item, k, 0, kind);
        s->ring_steward = 1; /* it may act on this stamp before the owner stamp is there */
    }
    if (--c->own_left)
        return;
    owner_stamp(out, n, c->declined);
    s->ring_trunk = 1;
    s->ring_steward |= c->declined;
}

void share_give(struct shares *s, struct open_call *c, uint32_t item, uint32_t k, uint64_t am,
                uint32_t place, uint64_t epoch)
{
    struct outbox *out = s->m->out;
    struct share *sh = share_of(s, c, item, k);

    if (!c->counted)
        counter_add(&out->count.calls, 1);
    c->counted = 1;
    if (!am) {
        sh->owes_call = 1;
        c->own_left++;
    }
    if (am && sh->am) { /* not made yet, so declined; the new giving goes on in its stead */
        shares_stamping(s);
        item_stamp(&s->m->g, out, sh->call, item, k, sh->am, STAMP_DECLINED);
        counter_add(&out->count.declined, 1);
        s->ring_steward = 1;
    }
    if (am || !sh->am) { /* an amendment that we saw before its call is the newer giving */
        sh->am = am;
        sh->place = place;
        sh->epoch = epoch;
    }
    if (sh->staged) { /* a redirect to us brings no new stage stamp, but somebody may wait for it */
        shares_stamping(s);
        s->ring_nodes = 1;
    }
    if (sh->made) { /* the row is there and right */
        share_answer(s, c, item, k, STAMP_DONE);
        return;
    }
    if (sh->state == SHARE_IDLE)
        c->open[c->n_open++] = item * s->m->g.n_nodes + k;
    sh->state = sh->staged ? SHARE_STAGED : SHARE_TODO;
}

void shares_forget(struct shares *s, struct open_call *c)
{
    uint32_t n_nodes = s->m->g.n_nodes;

    for (uint32_t i = 0; i < c->n_open; i++)
        share_of(s, c, c->open[i] / n_nodes, c->open[i] % n_nodes)->state = SHARE_IDLE;
    c->n_open = c->own_left = 0;
}

void shares_ring(struct shares *s)
{
    const struct maps *m = s->m;

    if (!s->stamping)
        return;
    fault_pass(FAULT_RING);
    atomic_thread_fence(memory_order_seq_cst);
    if (s->ring_trunk)
        bell_ring_fenced(&m->bells[PROC_TRUNK], &m->calls->asleep);
    if (s->ring_steward)
        bell_ring_fenced(&m->bells[PROC_STEWARD], &m->board->asleep_steward);
    for (uint32_t i = 0; s->ring_nodes && i < m->n_other; i++)
        bell_ring_fenced(&m->bells[m->other[i]], &m->box[m->other[i]]->asleep);
    consumer_rung(m->out);
    s->stamping = s->ring_trunk = s->ring_steward = s->ring_nodes = 0;
}
