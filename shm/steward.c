/* The steward's books. Everything that it must know of an open call is in private memory: a copy of
 * the call, each share's present giving, and the former givings that are unanswered and so hold
 * their places. Writes the amendment ring and the redirect words; nobody else does. */
#include "shm/steward.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct share {
    struct giving now;
    uint64_t since;
    enum stamp_kind kind; /* its answer, as last seen */
};
struct open_call {
    uint64_t n; /* 0: none */
    struct call copy;
    struct share *share;   /* item * n_nodes + share */
    struct giving *former; /* unanswered, replaced since */
    size_t n_former;
};
struct worker {
    struct outbox *box;
    enum worker_state state;
};
struct steward {
    struct steward_config c;
    const struct geometry *g;
    uint64_t next;
    size_t max_former;
    struct open_call open[CALLS_IN_FLIGHT];
    struct worker worker[MAX_PROCS];
    uint32_t n_workers; /* numbers above were never used */
    struct steward_counters count;
};

static size_t max_shares(const struct geometry *g)
{
    return (size_t)g->max_items * g->n_nodes;
}

int steward_open(const struct steward_config *c, struct steward **out, struct err *e)
{
    const struct geometry *g = c->geo;
    struct steward *s;

    if (g->amend_slots & (g->amend_slots - 1) ||
        g->amend_slots < CALLS_IN_FLIGHT * max_shares(g)) /* rule 11: else it may never end */
        return err_set(
            e, -EINVAL,
            "%u amendment slots: a power of two is needed, at least the %zu shares of the "
            "calls in flight",
            g->amend_slots, CALLS_IN_FLIGHT * max_shares(g));
    s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, -ENOMEM, "no memory for the steward");
    s->c = *c;
    s->g = g;
    s->next = c->first;
    /* a grant is n_nodes givings, each of them may amend every share once; as much again to be kept
     */
    s->max_former = 2 * (g->n_nodes + 1) * max_shares(g);
    for (size_t i = 0; i < CALLS_IN_FLIGHT; i++) {
        struct open_call *o = &s->open[i];
        o->copy.items = calloc(g->max_items, sizeof *o->copy.items);
        o->copy.pairs = calloc(g->max_pairs, sizeof *o->copy.pairs);
        o->share = calloc(max_shares(g), sizeof *o->share);
        o->former = calloc(s->max_former, sizeof *o->former);
        if (!o->copy.items || !o->copy.pairs || !o->share || !o->former) {
            steward_close(s);
            return err_set(e, -ENOMEM, "no memory for the steward's books");
        }
    }
    *out = s;
    return 0;
}

void steward_close(struct steward *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < CALLS_IN_FLIGHT; i++) {
        free(s->open[i].copy.items);
        free(s->open[i].copy.pairs);
        free(s->open[i].share);
        free(s->open[i].former);
    }
    free(s);
}

void steward_worker(struct steward *s, uint32_t outbox, struct outbox *box, enum worker_state state)
{
    assert(outbox < MAX_PROCS && outbox != OWNER_DISK);
    s->worker[outbox] = (struct worker){box, state};
    if (outbox >= s->n_workers)
        s->n_workers = outbox + 1;
}

uint64_t steward_cursor(const struct steward *s)
{
    return s->next;
}
const struct steward_counters *steward_counters(const struct steward *s)
{
    return &s->count;
}

static struct open_call *find(const struct steward *s, uint64_t n)
{
    const struct open_call *o = &s->open[n % CALLS_IN_FLIGHT];

    return o->n == n && call_is_open(s->g, s->c.calls, n) ? (struct open_call *)o : NULL;
}
static struct share *share_of(const struct steward *s, const struct open_call *o, uint32_t item,
                              uint32_t share)
{
    return &o->share[(size_t)item * s->g->n_nodes + share];
}
static size_t n_shares(const struct steward *s, const struct open_call *o)
{
    return (size_t)o->copy.head.n_items * s->g->n_nodes;
}

/* ---- taking calls up and dropping them ---- */

static void drop(struct steward *s, struct open_call *o)
{
    for (size_t i = 0; i < n_shares(s, o); i++) /* 16 bits of a call's number come again */
        if (o->share[i].now.am)
            atomic_store_explicit(
                redirects_of(s->g, s->c.amends) +
                    stamp_index(s->g, o->n, o->share[i].now.item, o->share[i].now.share),
                0, memory_order_release);
    o->n = 0;
    o->n_former = 0;
    o->copy.head.n_items = 0;
}

static void ring_owners(struct steward *s, const struct open_call *o)
{
    uint64_t rung[MAX_PROCS / 64] = {0}; /* one wake-up each, however many shares it has */

    atomic_thread_fence(memory_order_seq_cst);
    for (size_t i = 0; i < n_shares(s, o); i++) {
        uint32_t w = o->share[i].now.outbox;
        if (w == OWNER_DISK || rung[w / 64] >> w % 64 & 1)
            continue;
        rung[w / 64] |= 1ull << w % 64;
        bell_ring_fenced(&s->c.bells[outbox_home(w)], &s->worker[w].box->asleep);
    }
    atomic_store_explicit(&s->c.board->steward_rung, o->n, memory_order_release);
}

/* The slot's copy is call n, whole. */
static int take_up(struct steward *s, struct open_call *o, uint64_t n, uint64_t now, struct err *e)
{
    int rc = call_check(s->g, &o->copy, e);

    if (!rc && o->copy.head.seq != n)
        rc = err_set(e, -EPROTO, "call %llu says that it is call %llu", (unsigned long long)n,
                     (unsigned long long)o->copy.head.seq);
    for (uint32_t i = 0; !rc && i < o->copy.head.n_items; i++)
        for (uint32_t k = 0; !rc && k < s->g->n_nodes; k++) {
            const struct call_item *it = &o->copy.items[i];
            if (it->owner[k] != OWNER_DISK && !s->worker[it->owner[k]].box)
                rc = err_set(e, -EPROTO, "call %llu: item %u: there is no outbox %u",
                             (unsigned long long)n, i, it->owner[k]);
            *share_of(s, o, i, k) = (struct share){.now = {.item = i,
                                                           .share = (uint16_t)k,
                                                           .outbox = it->owner[k],
                                                           .place = it->place,
                                                           .epoch = it->epoch},
                                                   .since = now};
        }
    if (rc) {
        o->copy.head.n_items = 0;
        return rc;
    }
    o->n = n;
    s->count.calls++;
    if (s->c.taken)
        s->c.taken(s->c.arg, &o->copy);
    if (s->c.ring_calls)
        ring_owners(s, o);
    return 0;
}

static int new_calls(struct steward *s, uint64_t now, struct err *e)
{
    for (;;) {
        struct open_call *o = &s->open[s->next % CALLS_IN_FLIGHT];
        uint64_t w =
            atomic_load_explicit(call_word(s->g, s->c.calls, s->next), memory_order_acquire);
        enum ring_look look;
        if (w < PUBLISHED(s->next))
            return 0;
        if (o->n && call_is_open(s->g, s->c.calls, o->n))
            return err_set(e, -EPROTO, "call %llu is published and call %llu still open",
                           (unsigned long long)s->next, (unsigned long long)o->n);
        if (o->n)
            drop(s, o);
        look = call_copy(s->g, s->c.calls, s->next, &o->copy);
        if (look == RING_TAKEN) {
            int rc = take_up(s, o, s->next, now, e);
            if (rc)
                return rc;
        } else { /* passed over: retired calls only (rule 5) */
            o->copy.head.n_items = 0;
            s->count.passed++;
        }
        s->next++;
    }
}

/* ---- stamps ---- */

static int quiet(const struct steward *s, uint32_t outbox)
{
    return s->worker[outbox].state == WORKER_REAPED;
}
static int unanswered(const struct share *h)
{
    return h->now.outbox != OWNER_DISK && h->kind == STAMP_NONE;
}
/* The share's owner is dead and has not stamped it: as good as no giving, but for the place. */
static int is_lost(const struct steward *s, const struct share *h)
{
    return unanswered(h) && s->worker[h->now.outbox].state != WORKER_LIVE;
}
static int awaited(const struct steward *s, const struct share *h)
{
    return unanswered(h) && !is_lost(s, h);
}
static int over(const struct steward *s, uint64_t call, const struct giving *v)
{
    return quiet(s, v->outbox) ||
           giving_over(s->g, s->worker[v->outbox].box, call, v->item, v->share, v->am);
}

static void look_at_share(struct steward *s, struct open_call *o, struct share *h)
{
    if (!unanswered(h))
        return;
    h->kind = giving_answer(s->g, s->worker[h->now.outbox].box, o->n, h->now.item, h->now.share,
                            h->now.am);
    s->count.declines += h->kind == STAMP_DECLINED;
}

static void look_at_call(struct steward *s, struct open_call *o)
{
    size_t kept = 0;

    for (size_t i = 0; i < n_shares(s, o); i++)
        look_at_share(s, o, &o->share[i]);
    for (size_t i = 0; i < o->n_former; i++)
        if (!over(s, o->n, &o->former[i]))
            o->former[kept++] = o->former[i];
    o->n_former = kept;
}

int steward_follow(struct steward *s, uint64_t now, struct err *e)
{
    int rc = new_calls(s, now, e), n = 0;

    for (size_t i = 0; i < CALLS_IN_FLIGHT; i++) {
        struct open_call *o = &s->open[i];
        if (!o->n)
            continue;
        if (!call_is_open(s->g, s->c.calls, o->n)) {
            drop(s, o);
            continue;
        }
        look_at_call(s, o);
        n++;
    }
    return rc ? rc : n;
}

/* ---- what needs somebody ---- */

/* The first share of the item that wants a place, if the item may be granted one now; or NULL. */
static struct share *wants_place(const struct steward *s, const struct open_call *o, uint32_t item)
{
    struct share *first = NULL;

    for (uint32_t k = 0; k < s->g->n_nodes; k++) {
        struct share *h = share_of(s, o, item, k);
        if (awaited(s, h))
            return NULL;
        if (!first && h->kind != STAMP_DONE)
            first = h;
    }
    return first;
}

int steward_wants_place(const struct steward *s, uint64_t call, uint32_t item)
{
    const struct open_call *o = find(s, call);

    return o && item < o->copy.head.n_items && wants_place(s, o, item) != NULL;
}

static struct need need_of(const struct open_call *o, const struct share *h, enum need_why why)
{
    return (struct need){.why = why,
                         .call = o->n,
                         .item = h->now.item,
                         .share = h->now.share,
                         .layer = o->copy.head.layer,
                         .expert = o->copy.items[h->now.item].expert,
                         .was = h->now,
                         .since = h->since};
}

static enum need_why why_of(const struct steward *s, const struct share *h, int waits, uint64_t now,
                            uint64_t deadline_ns)
{
    if (h->kind == STAMP_DECLINED && waits)
        return NEED_AGAIN;
    if (!unanswered(h))
        return NEED_NOTHING;
    if (is_lost(s, h))
        return NEED_OWNER;
    if (deadline_ns && now > h->since && now - h->since > deadline_ns)
        return NEED_LATE;
    return NEED_NOTHING;
}

static size_t needs_of_item(const struct steward *s, const struct open_call *o, uint32_t item,
                            uint64_t now, uint64_t deadline_ns, struct need *out)
{
    const struct share *h = wants_place(s, o, item);
    size_t n = 0;
    int waits = 0; /* some share is unstamped, and its owner lives */

    if (h) {
        out[n++] = need_of(o, h, NEED_PLACE);
        return n;
    }
    for (uint32_t k = 0; k < s->g->n_nodes; k++)
        waits |= awaited(s, share_of(s, o, item, k));
    for (uint32_t k = 0; k < s->g->n_nodes; k++) {
        enum need_why why;
        h = share_of(s, o, item, k);
        why = why_of(s, h, waits, now, deadline_ns);
        if (why)
            out[n++] = need_of(o, h, why);
    }
    return n;
}

size_t steward_needs(const struct steward *s, uint64_t now, uint64_t deadline_ns, struct need *out,
                     size_t max)
{
    uint64_t oldest = s->next > CALLS_IN_FLIGHT ? s->next - CALLS_IN_FLIGHT : 1;
    size_t n = 0;

    for (uint64_t c = oldest; c < s->next; c++) {
        const struct open_call *o = &s->open[c % CALLS_IN_FLIGHT];
        for (uint32_t i = 0; o->n == c && i < o->copy.head.n_items; i++) {
            struct need some[MAX_NODES];
            size_t k = needs_of_item(s, o, i, now, deadline_ns, some);
            for (size_t j = 0; j < k; j++, n++)
                if (n < max)
                    out[n] = some[j];
        }
    }
    return n;
}

/* ---- giving ---- */

/* Does amendment slot n still count (rule 11), its giving unanswered and its owner alive? A stamped one was
 * served by the only worker that it names, a dead one serves none: nobody needs the slot any more. */
static int slot_counts(struct steward *s, uint64_t n, struct amendment *in)
{
    return amend_counts(s->g, s->c.amends, s->c.calls, n, in) &&
           s->worker[in->outbox].state == WORKER_LIVE &&
           !giving_over(s->g, s->worker[in->outbox].box, in->call, in->item, in->share, in->seq);
}

static uint64_t next_amend(const struct steward *s)
{
    return atomic_load_explicit(&s->c.amends->head, memory_order_relaxed) + 1;
}

/* A giving that is replaced holds its place until it is stamped (rule 10). Of amendments that name the same
 * owner and place for a share one is kept, the newest: whoever is late for long may be asked again and again in
 * between, may find only the last in the ring, and its stamp answers all of them. */
static void keep_former(struct steward *s, struct open_call *o, const struct share *h,
                        uint32_t outbox, uint32_t place)
{
    const struct giving *now = &h->now;

    if (!unanswered(h) || over(s, o->n, &h->now))
        return;
    if (h->now.am && h->now.outbox == outbox && h->now.place == place)
        return; /* the new giving's stamp answers this one too and holds the same place */
    for (size_t i = 0; now->am && i < o->n_former; i++) {
        struct giving *f = &o->former[i];
        if (f->am && f->item == now->item && f->share == now->share && f->outbox == now->outbox &&
            f->place == now->place && f->epoch == now->epoch) {
            f->am = now->am;
            return;
        }
    }
    assert(o->n_former < s->max_former);
    o->former[o->n_former++] = h->now;
}

static void publish(struct steward *s, struct open_call *o, struct share *h, uint32_t outbox,
                    uint32_t place, uint64_t epoch, uint64_t now)
{
    struct amendment am = {.seq = next_amend(s),
                           .call = o->n,
                           .item = h->now.item,
                           .share = h->now.share,
                           .outbox = (uint16_t)outbox,
                           .place = place,
                           .epoch = epoch};
    struct giving v = h->now;

    assert(am.seq < AMEND_LAST);
    s->count.amendments++;
    s->count.wraps += am.seq > s->g->amend_slots;
    s->count.late +=
        unanswered(h) && s->worker[v.outbox].state == WORKER_LIVE && v.outbox != outbox;
    keep_former(s, o, h, outbox, place);
    v.am = am.seq;
    v.outbox = am.outbox;
    v.place = place;
    v.epoch = epoch;
    *h = (struct share){.now = v, .since = now};
    amend_publish(s->g, s->c.amends, s->c.calls, &am);
    s->count.taken_back += !call_is_open(s->g, s->c.calls, o->n);
    bell_ring(&s->c.bells[outbox_home(outbox)], &s->worker[outbox].box->asleep);
    atomic_store_explicit(&s->c.board->amends_rung, am.seq, memory_order_release);
}

/* Room for n givings, each of which may amend every share of both calls once. */
static int has_room(const struct steward *s, size_t n)
{
    for (size_t i = 0; i < CALLS_IN_FLIGHT; i++)
        if (s->open[i].n && s->max_former - s->open[i].n_former < n * max_shares(s->g) + n)
            return 0;
    return 1;
}

static void give(struct steward *s, struct open_call *o, struct share *h, uint32_t outbox,
                 uint32_t place, uint64_t epoch, uint64_t now)
{
    struct amendment in;

    for (size_t i = 0; slot_counts(s, next_amend(s), &in) &&
                       !(in.call == o->n && in.item == h->now.item && in.share == h->now.share);
         i++) {
        struct open_call *other = &s->open[in.call % CALLS_IN_FLIGHT];
        struct share *first = share_of(s, other, in.item, in.share);
        assert(i < CALLS_IN_FLIGHT * max_shares(s->g) && other->n == in.call);
        s->count.first_amended++;
        publish(s, other, first, first->now.outbox, first->now.place, first->now.epoch, now);
    }
    publish(s, o, h, outbox, place, epoch, now);
}

int steward_give(struct steward *s, uint64_t call, uint32_t item, uint32_t share, uint32_t outbox,
                 uint32_t place, uint64_t epoch, uint64_t now)
{
    struct open_call *o = find(s, call);
    struct share *h;

    assert(outbox < MAX_PROCS && s->worker[outbox].state == WORKER_LIVE && s->worker[outbox].box);
    if (!o || item >= o->copy.head.n_items || share >= s->g->n_nodes)
        return 0;
    h = share_of(s, o, item, share);
    look_at_share(s, o, h);
    if (h->kind == STAMP_DONE)
        return 0;
    if (!has_room(s, 1))
        return -EAGAIN;
    give(s, o, h, outbox, place, epoch, now);
    return 1;
}

int steward_grant(struct steward *s, uint64_t call, uint32_t item, uint32_t place, uint64_t epoch,
                  const uint32_t owner[MAX_NODES], uint64_t now)
{
    struct open_call *o = find(s, call);
    int n = 0;

    if (!o || item >= o->copy.head.n_items)
        return 0;
    if (!has_room(s, s->g->n_nodes))
        return -EAGAIN;
    for (uint32_t k = 0; k < s->g->n_nodes && (o = find(s, call)); k++) {
        struct share *h = share_of(s, o, item, k);
        if (h->kind == STAMP_DONE)
            continue;
        assert(s->worker[owner[k]].state == WORKER_LIVE && s->worker[owner[k]].box);
        give(s, o, h, owner[k], place, epoch, now);
        n++;
    }
    return n;
}

/* ---- places and outboxes in use ---- */

static int call_names_place(const struct steward *s, const struct open_call *o, uint32_t place)
{
    for (size_t i = 0; i < n_shares(s, o); i++) {
        const struct share *h = &o->share[i];
        if (unanswered(h) && h->now.place == place && !quiet(s, h->now.outbox))
            return 1;
    }
    for (size_t i = 0; i < o->n_former; i++)
        if (o->former[i].place == place)
            return 1;
    return 0;
}

int steward_place_named(struct steward *s, uint32_t place, uint64_t now, struct err *e)
{
    int rc;

    atomic_thread_fence(
        memory_order_seq_cst); /* after the header's mark, before the look at the ring */
    rc = steward_follow(s, now, e);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < CALLS_IN_FLIGHT; i++)
        if (s->open[i].n && call_names_place(s, &s->open[i], place))
            return 1;
    return 0;
}

uint32_t steward_lost(const struct steward *s, uint32_t outbox, struct lost *out, uint32_t max)
{
    uint32_t n = 0;

    for (size_t i = 0; i < CALLS_IN_FLIGHT; i++) {
        const struct open_call *o = &s->open[i];
        for (uint32_t item = 0; o->n && item < o->copy.head.n_items; item++) {
            uint32_t k = 0;
            while (k < s->g->n_nodes && !(unanswered(share_of(s, o, item, k)) &&
                                          share_of(s, o, item, k)->now.outbox == outbox))
                k++;
            if (k == s->g->n_nodes)
                continue;
            if (n < max)
                out[n] = (struct lost){o->n, o->copy.head.layer, o->copy.items[item].expert};
            n++;
        }
    }
    return n;
}

void steward_ring_workers(struct steward *s)
{
    atomic_thread_fence(memory_order_seq_cst);
    for (uint32_t w = 0; w < s->n_workers; w++)
        if (s->worker[w].state == WORKER_LIVE)
            bell_ring_fenced(&s->c.bells[outbox_home(w)], &s->worker[w].box->asleep);
}

int steward_outbox_named(const struct steward *s, uint32_t outbox)
{
    for (size_t i = 0; i < CALLS_IN_FLIGHT; i++) {
        const struct open_call *o = &s->open[i];
        if (!o->n)
            continue;
        for (size_t k = 0; k < n_shares(s, o); k++)
            if (o->share[k].now.outbox == outbox ||
                o->copy.items[k / s->g->n_nodes].owner[k % s->g->n_nodes] == outbox)
                return 1;
        for (size_t k = 0; k < o->n_former; k++)
            if (o->former[k].outbox == outbox)
                return 1;
    }
    return 0;
}

/* ---- before sleep ---- */

static enum look look_of(const struct steward *s, uint32_t outbox)
{
    const struct outbox *b = s->worker[outbox].box;

    return atomic_load_explicit(&b->ringing, memory_order_acquire) % 2 ? LOOK_FOUND : LOOK_RUNG;
}

int steward_look(void *arg)
{
    struct steward *s = arg;

    if (atomic_load_explicit(call_word(s->g, s->c.calls, s->next), memory_order_acquire) >=
        PUBLISHED(s->next))
        return LOOK_FOUND;
    for (size_t i = 0; i < CALLS_IN_FLIGHT; i++) {
        const struct open_call *o = &s->open[i];
        if (!o->n || !call_is_open(s->g, s->c.calls, o->n))
            continue;
        for (size_t k = 0; k < n_shares(s, o); k++) {
            const struct share *h = &o->share[k];
            enum stamp_kind kind = STAMP_NONE;
            if (unanswered(h))
                kind = giving_answer(s->g, s->worker[h->now.outbox].box, o->n, h->now.item,
                                     h->now.share, h->now.am);
            if (kind == STAMP_DECLINED || (kind && h->now.am))
                return (int)look_of(s, h->now.outbox);
        }
        for (size_t k = 0; k < o->n_former; k++)
            if (over(s, o->n, &o->former[k]))
                return o->former[k].am ? (int)look_of(s, o->former[k].outbox) : LOOK_FOUND;
    }
    return LOOK_NOTHING;
}
