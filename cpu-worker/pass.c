/* What is worked at next. What it must never do: have a share worked at before its stamps allow it,
 * or wait for another node with a stage one of its own undone (rule 16): a pass is chosen from
 * whatever is ready now, and nothing here blocks. */
#include "cpu-worker/share.h"

/* The other nodes' stage stamps arrive one after another; a pass of the team costs microseconds. So
 * a set of ready shares that is still growing is looked at again, for about a microsecond in all.
 */
#define GROW_LOOKS 8
#define GROW_PAUSES 8

/* The outbox that has share k now: the redirect word's, or the call's. May be OWNER_DISK. */
static uint32_t owner_of(const struct maps *m, const struct call *c, uint32_t item, uint32_t k)
{
    uint32_t outbox;

    present_giving(&m->g, m->amends, c->head.seq, item, k, c->items[item].owner[k], &outbox);
    return outbox;
}

static int header_differs(const struct maps *m, uint32_t k, const struct share *sh)
{
    return atomic_load_explicit(place_header(m->tables, &m->g, k, sh->place),
                                memory_order_acquire) != sh->epoch;
}

/* Is the whole intermediate of the item there? Says where: share j's columns lie in inter[j]. Ours
 * count whoever owns them now; of the rest the present owner's. An owner without an outbox here
 * (nobody yet, a card) has not staged. */
static int all_staged(const struct maps *m, const struct call *c, uint32_t item,
                      const float **inter)
{
    uint64_t n = c->head.seq;

    for (uint32_t j = 0; j < m->g.n_nodes; j++) {
        struct outbox *box = m->out;
        if (!staged(&m->g, box, n, item, j)) {
            box = m->box[owner_of(m, c, item, j)];
            if (!box || !staged(&m->g, box, n, item, j))
                return 0;
        }
        inter[j] = outbox_inter(&m->g, box, n);
    }
    return 1;
}

/* Takes out of c->open what is IDLE by now. */
static void compact(struct shares *s, struct open_call *c)
{
    uint32_t n_nodes = s->m->g.n_nodes, n = 0;

    for (uint32_t i = 0; i < c->n_open; i++)
        if (share_of(s, c, c->open[i] / n_nodes, c->open[i] % n_nodes)->state != SHARE_IDLE)
            c->open[n++] = c->open[i];
    c->n_open = n;
}

/* Declines the call's shares whose place holds something else now (rules 13, 19). */
static int decline(struct shares *s, struct open_call *c)
{
    uint32_t n_nodes = s->m->g.n_nodes;
    int n = 0;

    for (uint32_t i = 0; i < c->n_open; i++) {
        uint32_t item = c->open[i] / n_nodes, k = c->open[i] % n_nodes;
        if (!header_differs(s->m, k, share_of(s, c, item, k)))
            continue;
        share_answer(s, c, item, k, STAMP_DECLINED);
        n++;
    }
    if (n)
        compact(s, c);
    return n;
}

/* The call's shares in that state, and ready, into the pass. Returns how many more are in the
 * state. */
static uint32_t collect(struct shares *s, struct open_call *c, enum share_state state)
{
    uint32_t n_nodes = s->m->g.n_nodes, waiting = 0;
    struct pass *p = &s->pass;

    p->n = 0;
    for (uint32_t i = 0; i < c->n_open; i++) {
        uint32_t item = c->open[i] / n_nodes, k = c->open[i] % n_nodes;
        struct share *sh = share_of(s, c, item, k);
        struct pass_item *it = &p->item[p->n];
        if (sh->state != state)
            continue;
        if (state == SHARE_STAGED && !all_staged(s->m, &c->copy, item, it->inter)) {
            waiting++;
            continue;
        }
        it->item = item;
        it->share = k;
        it->place = sh->place;
        p->n++;
    }
    return waiting;
}

static const struct pass *pass_of(struct shares *s, struct open_call *c)
{
    struct pass *p = &s->pass;
    int one_node = s->m->g.n_nodes == 1 || s->whole;
    uint32_t before, waiting;

    p->call = &c->copy;
    collect(s, c, SHARE_TODO);
    if (p->n) {
        p->stage_one = 1;
        p->stage_two = one_node;
        return p;
    }
    if (one_node)
        return NULL;
    p->stage_one = 0;
    p->stage_two = 1;
    waiting = collect(s, c, SHARE_STAGED);
    for (int look = 0; p->n && waiting && look < GROW_LOOKS; look++) {
        before = p->n;
        for (int i = 0; i < GROW_PAUSES; i++)
            cpu_pause();
        waiting = collect(s, c, SHARE_STAGED);
        if (p->n == before)
            break;
    }
    return p->n ? p : NULL;
}

/* The open call with the lowest number above `after`, or NULL. */
static struct open_call *oldest(struct shares *s, uint64_t after)
{
    struct open_call *best = NULL;

    for (int i = 0; i < (int)CALL_SLOTS; i++) {
        struct open_call *c = &s->call[i];
        if (c->n_open && c->copy.head.seq > after &&
            (!best || c->copy.head.seq < best->copy.head.seq))
            best = c;
    }
    return best;
}

const struct pass *shares_next(struct shares *s, int *declined)
{
    const struct pass *p = NULL;
    struct open_call *c;
    uint64_t after = 0;

    *declined = 0;
    /* retired calls first, all of them: a younger call may have their half of the arenas by now */
    while ((c = oldest(s, after))) {
        after = c->copy.head.seq;
        if (!call_is_open(&s->m->g, s->m->calls, after))
            shares_forget(s, c);
        else
            *declined += decline(s, c);
    }
    after = 0;
    while (!p && (c = oldest(s, after))) {
        after = c->copy.head.seq;
        p = pass_of(s, c);
    }
    shares_ring(s);
    return p;
}

void shares_done(struct shares *s, const struct pass *p)
{
    const struct geometry *g = &s->m->g;
    struct open_call *c = &s->call[p->call->head.seq % CALL_SLOTS];

    if (!call_is_open(g, s->m->calls, p->call->head.seq)) { /* we were late */
        shares_forget(s, c);
        return;
    }
    shares_stamping(s);
    for (uint32_t i = 0; i < p->n; i++) {
        const struct pass_item *it = &p->item[i];
        struct share *sh = share_of(s, c, it->item, it->share);
        if (p->stage_two) {
            if (s->whole && g->n_nodes > 1) { /* a sister share may end on a node, which waits for ours */
                sh->staged = 1;
                stage_stamp(g, s->m->out, p->call->head.seq, it->item, it->share);
                s->ring_nodes = 1;
            }
            counter_add(&s->m->out->count.items, 1);
            share_answer(s, c, it->item, it->share, STAMP_DONE);
            continue;
        }
        sh->state = SHARE_STAGED;
        sh->staged = 1;
        fault_pass(FAULT_STAGE);
        stage_stamp(g, s->m->out, p->call->head.seq, it->item, it->share);
        s->ring_nodes = 1;
    }
    if (p->stage_two)
        compact(s, c);
    shares_ring(s);
}

/* Has everybody who staged a share of the item rung for it? */
static int all_rung(const struct maps *m)
{
    for (uint32_t i = 0; i < m->n_other; i++)
        if (atomic_load_explicit(&m->box[m->other[i]]->ringing, memory_order_acquire) % 2)
            return 0;
    return 1;
}

int shares_look(const struct shares *s)
{
    const struct geometry *g = &s->m->g;
    const float *inter[MAX_NODES];

    for (int i = 0; i < (int)CALL_SLOTS; i++) {
        const struct open_call *c = &s->call[i];
        if (c->n_open && !call_is_open(g, s->m->calls, c->copy.head.seq))
            return LOOK_FOUND;
        for (uint32_t j = 0; j < c->n_open; j++) {
            uint32_t item = c->open[j] / g->n_nodes, k = c->open[j] % g->n_nodes;
            const struct share *sh = share_of(s, c, item, k);
            if (sh->state == SHARE_TODO || header_differs(s->m, k, sh))
                return LOOK_FOUND;
            if (all_staged(s->m, &c->copy, item, inter))
                return all_rung(s->m) ? LOOK_RUNG : LOOK_FOUND;
        }
    }
    return LOOK_NOTHING;
}
