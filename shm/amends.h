/* The amendment ring and the redirect words (shm/model/amring.pml, amend.pml). The steward is the
 * only producer. */
#pragma once
#include "shm/calls.h"

/* redirect word: amendment 38 bits | outbox 10 | low 16 bits of the call; 0: none */
#define REDIRECT(am, outbox, call) ((uint64_t)(am) << 26 | (uint64_t)(outbox) << 16 | ((call) & 0xFFFF))
#define REDIRECT_AMEND(w) ((w) >> 26)
#define REDIRECT_OUTBOX(w) ((uint32_t)((w) >> 16) & 1023)
#define REDIRECT_IS_OF(w, call) ((w) != 0 && ((w) & 0xFFFF) == ((call) & 0xFFFF))
#define AMEND_LAST (((uint64_t)1 << 38) - 1) /* the coordinator makes new rings before this number */

/* item stamp: amendment 38 bits (0: the call's own giving) | low 24 bits of the call | kind */
enum stamp_kind { STAMP_NONE = 0, STAMP_DONE = 1, STAMP_DECLINED = 2 };
#define STAMP(am, call, kind) ((uint64_t)(am) << 26 | ((call) & 0xFFFFFF) << 2 | (kind))
#define STAMP_KIND(w) ((int)((w) & 3))
#define STAMP_AMEND(w) ((w) >> 26)
#define STAMP_IS_OF(w, call) (((w) >> 2 & 0xFFFFFF) == ((call) & 0xFFFFFF) && STAMP_KIND(w))

static inline enum ring_look amend_copy(const struct geometry *g, struct amends *a, uint64_t n,
                                        struct amendment *out)
{
    struct amend_slot *s = amend_slot_of(g, a, n);
    uint64_t w = atomic_load_explicit(&s->word, memory_order_acquire);

    if (w < PUBLISHED(n))
        return RING_NOT_YET;
    if (w > PUBLISHED(n))
        return RING_GONE;
    words_load(out, &s->am, sizeof *out);
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&s->word, memory_order_relaxed) != PUBLISHED(n))
        return RING_GONE;
    return RING_TAKEN;
}

/* Steward: the slot must be free (amend_counts is 0 for what is in it, or the same share is amended
 * again). Redirect word first; then the slot's retire, fields, publish; then, if the call has gone
 * meanwhile, the redirect word becomes 0 again. am->seq is set by the caller to head + 1. */
static inline void amend_publish(const struct geometry *g, struct amends *a, struct calls *c,
                                 const struct amendment *am)
{
    struct amend_slot *s = amend_slot_of(g, a, am->seq);
    _Atomic uint64_t *red = redirects_of(g, a) + stamp_index(g, am->call, am->item, am->share);
    uint64_t old = atomic_load_explicit(&s->word, memory_order_relaxed);

    atomic_store_explicit(red, REDIRECT(am->seq, am->outbox, am->call), memory_order_release);
    if (!call_is_open(g, c, am->call)) /* decided for a call that has gone: take it back */
        atomic_store_explicit(red, 0, memory_order_release);
    if (old) {
        atomic_store_explicit(&s->word, RETIRED(am->seq - g->amend_slots), memory_order_release);
        atomic_thread_fence(memory_order_release);
    }
    words_store(&s->am, am, sizeof *am);
    atomic_store_explicit(&s->word, PUBLISHED(am->seq), memory_order_release);
    atomic_store_explicit(&a->head, am->seq, memory_order_release);
}

/* Does the amendment in the slot that number n would take still count: its call open and its share
 * not amended since? Fills *in with it then. */
static inline int amend_counts(const struct geometry *g, struct amends *a, struct calls *c, uint64_t n,
                               struct amendment *in)
{
    struct amend_slot *s = amend_slot_of(g, a, n);

    if (!atomic_load_explicit(&s->word, memory_order_relaxed))
        return 0;
    *in = s->am; /* the steward is the only writer */
    return call_is_open(g, c, in->call) &&
           atomic_load_explicit(redirects_of(g, a) + stamp_index(g, in->call, in->item, in->share),
                                memory_order_relaxed) ==
               REDIRECT(in->seq, in->outbox, in->call);
}

/* ---- stamps ---- */
static inline void stage_stamp(const struct geometry *g, struct outbox *o, uint64_t call, uint32_t item,
                               uint32_t share)
{
    atomic_store_explicit(outbox_stages(g, o) + stamp_index(g, call, item, share), call,
                          memory_order_release);
}
static inline int staged(const struct geometry *g, struct outbox *o, uint64_t call, uint32_t item,
                         uint32_t share)
{
    return atomic_load_explicit(outbox_stages(g, o) + stamp_index(g, call, item, share),
                                memory_order_acquire) == call;
}
/* A stamp for the call's own giving (am 0) never replaces an amendment's of the same item. */
static inline void item_stamp(const struct geometry *g, struct outbox *o, uint64_t call, uint32_t item,
                              uint32_t share, uint64_t am, enum stamp_kind kind)
{
    _Atomic uint64_t *w = outbox_items(g, o) + stamp_index(g, call, item, share);
    uint64_t old = atomic_load_explicit(w, memory_order_relaxed);

    if (STAMP_IS_OF(old, call) && STAMP_AMEND(old) > am)
        return;
    atomic_store_explicit(w, STAMP(am, call, kind), memory_order_release);
}
/* Worker: before its first stamp for call n, if it has stamped amendments of an earlier call in n's
 * slot: 24 bits of a call's number come again (an hour of decoding), and such a stamp would be taken
 * for one of this call. Only when the slot says PUBLISHED(n): then nobody looks at the earlier. */
static inline void item_stamps_clear(const struct geometry *g, struct outbox *o, uint64_t call)
{
    _Atomic uint64_t *w = outbox_items(g, o) + stamp_index(g, call, 0, 0);

    for (size_t i = 0; i < (size_t)g->max_items * g->n_nodes; i++)
        atomic_store_explicit(&w[i], 0, memory_order_relaxed);
}
/* Coordinator: a dead worker's outbox is nobody's any more, and becomes another's. */
static inline void outbox_empty(const struct geometry *g, struct outbox *o)
{
    uint64_t n = (sizeof *o + 2 * outbox_stamp_bytes(g)) / sizeof(uint64_t);

    for (uint64_t i = 0; i < n; i++)
        atomic_store_explicit((_Atomic uint64_t *)o + i, 0, memory_order_relaxed);
}
static inline uint64_t item_stamp_of(const struct geometry *g, struct outbox *o, uint64_t call,
                                     uint32_t item, uint32_t share)
{
    return atomic_load_explicit(outbox_items(g, o) + stamp_index(g, call, item, share),
                                memory_order_acquire);
}
static inline void owner_stamp(struct outbox *o, uint64_t call, int declined)
{
    atomic_store_explicit(&o->owner[call % CALL_SLOTS], 2 * call + !!declined, memory_order_release);
}
/* The giving that counts for a share whose call names outbox `own`: its amendment (0: the call's own)
 * and its outbox. */
static inline uint64_t present_giving(const struct geometry *g, struct amends *a, uint64_t call,
                                      uint32_t item, uint32_t share, uint32_t own, uint32_t *outbox)
{
    uint64_t w = atomic_load_explicit(redirects_of(g, a) + stamp_index(g, call, item, share),
                                      memory_order_acquire);

    if (!REDIRECT_IS_OF(w, call)) {
        *outbox = own;
        return 0;
    }
    *outbox = REDIRECT_OUTBOX(w);
    return REDIRECT_AMEND(w);
}
/* Has outbox o answered the giving (am; 0: the call's own) of this share? STAMP_NONE: not yet. */
static inline enum stamp_kind giving_answer(const struct geometry *g, struct outbox *o, uint64_t call,
                                            uint32_t item, uint32_t share, uint64_t am)
{
    uint64_t w;

    if (!am) {
        uint64_t own = atomic_load_explicit(&o->owner[call % CALL_SLOTS], memory_order_acquire);
        if (own == 2 * call)
            return STAMP_DONE;
        w = item_stamp_of(g, o, call, item, share);
        if (!STAMP_IS_OF(w, call) || STAMP_KIND(w) != STAMP_DECLINED)
            return own == 2 * call + 1 ? STAMP_DONE : STAMP_NONE;
        /* Declined: at once if the stamp is the call's own giving's, for the owner stamp may wait for a
         * share that waits for this one. If it is an amendment's, it may have taken the place of the own
         * DECLINED: with the owner stamp flagged, somebody gives the item again and no wrong row is taken. */
        return !STAMP_AMEND(w) || own == 2 * call + 1 ? STAMP_DECLINED : STAMP_NONE;
    }
    w = item_stamp_of(g, o, call, item, share);
    return STAMP_IS_OF(w, call) && STAMP_AMEND(w) == am ? (enum stamp_kind)STAMP_KIND(w) : STAMP_NONE;
}
/* Is a share whose call names outbox `own` DONE by who has it now? *from: that outbox, of box by number (NULL: none). */
static inline int share_done(const struct geometry *g, struct amends *a, struct outbox *const *box, uint64_t call,
                             uint32_t item, uint32_t share, uint32_t own, uint32_t *from)
{
    uint64_t am = present_giving(g, a, call, item, share, own, from);

    return *from != OWNER_DISK && box[*from] && giving_answer(g, box[*from], call, item, share, am) == STAMP_DONE;
}
/* Is outbox o done with this giving, whatever came of it? A later amendment's stamp says so too. */
static inline int giving_over(const struct geometry *g, struct outbox *o, uint64_t call, uint32_t item,
                              uint32_t share, uint64_t am)
{
    uint64_t w;

    if (!am)
        return giving_answer(g, o, call, item, share, 0) != STAMP_NONE;
    w = item_stamp_of(g, o, call, item, share);
    return STAMP_IS_OF(w, call) && STAMP_AMEND(w) >= am;
}
