/* The call ring (shm/model/ring.pml). One producer fills slots, any number of consumers copy them. */
#pragma once
#include "shm/err.h"
#include "shm/fault.h"
#include "shm/layout.h"
#include "shm/words.h"

struct call { /* a consumer's or the producer's private copy; items and pairs are the owner's arrays */
    struct call_head head;
    struct call_item *items; /* max_items */
    struct call_pair *pairs; /* max_pairs */
};

static inline uint8_t *call_slot(const struct geometry *g, struct calls *c, uint64_t seq)
{
    return c->slot + (seq % CALL_SLOTS) * call_slot_bytes(g);
}
static inline _Atomic uint64_t *call_word(const struct geometry *g, struct calls *c, uint64_t seq)
{
    return (_Atomic uint64_t *)call_slot(g, c, seq);
}
static inline uint8_t *call_slot_items(uint8_t *slot)
{
    return slot + 64 + sizeof(struct call_head);
}

/* Producer. The slot's former call must be retired (call_retire) by now: at most CALLS_IN_FLIGHT
 * calls are open, fewer than slots, so it is. */
static inline void call_publish(const struct geometry *g, struct calls *c, const struct call *from)
{
    uint64_t n = from->head.seq;
    uint8_t *slot = call_slot(g, c, n), *at = call_slot_items(slot);

    words_store(slot + 64, &from->head, sizeof from->head);
    words_store(at, from->items, from->head.n_items * sizeof *from->items);
    at += g->max_items * sizeof *from->items;
    words_store(at, from->pairs, from->head.n_pairs * sizeof *from->pairs);
    fault_pass(FAULT_PUBLISH);
    atomic_store_explicit((_Atomic uint64_t *)slot, PUBLISHED(n), memory_order_release);
    fault_pass(FAULT_HEAD);
    atomic_store_explicit(&c->head, n, memory_order_release);
}
/* Producer: after the last row of call n was read, before anything of the slot, its activations or
 * its half of the arenas is stored again. */
static inline void call_retire(const struct geometry *g, struct calls *c, uint64_t n)
{
    atomic_store_explicit(call_word(g, c, n), RETIRED(n), memory_order_release);
    atomic_thread_fence(memory_order_release);
}

/* Coordinator, after its executor is reaped and before another begins: retires whatever is open, complete
 * or not, and mends head. Returns the next call's number; *n_open: calls that were open. */
uint64_t calls_bury(const struct geometry *g, struct calls *c, uint32_t *n_open);

enum ring_look { RING_NOT_YET, RING_TAKEN, RING_GONE };
/* Consumer: is call n there? RING_TAKEN: *out holds a whole copy. RING_GONE: it has been retired, and
 * nothing of ours was unfinished in it. Counts from the ring are checked against the geometry. */
static inline enum ring_look call_copy(const struct geometry *g, struct calls *c, uint64_t n,
                                       struct call *out)
{
    uint8_t *slot = call_slot(g, c, n), *at = call_slot_items(slot);
    uint64_t w = atomic_load_explicit((_Atomic uint64_t *)slot, memory_order_acquire);

    if (w < PUBLISHED(n))
        return RING_NOT_YET;
    if (w > PUBLISHED(n))
        return RING_GONE;
    words_load(&out->head, slot + 64, sizeof out->head);
    if (out->head.n_items <= g->max_items)
        words_load(out->items, at, out->head.n_items * sizeof *out->items);
    at += g->max_items * sizeof *out->items;
    if (out->head.n_pairs <= g->max_pairs)
        words_load(out->pairs, at, out->head.n_pairs * sizeof *out->pairs);
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit((_Atomic uint64_t *)slot, memory_order_relaxed) != PUBLISHED(n))
        return RING_GONE;
    return RING_TAKEN;
}
/* Are the numbers of a whole copy inside the geometry? 0, or -EPROTO: its producer is broken. */
int call_check(const struct geometry *g, const struct call *c, struct err *e);
/* Consumer: like call_copy, but looks only whether a share is `outbox`'s. RING_TAKEN: *ours says so. */
static inline enum ring_look call_peek(const struct geometry *g, struct calls *c, uint64_t n,
                                       uint32_t outbox, int *ours)
{
    uint8_t *slot = call_slot(g, c, n), *at = call_slot_items(slot);
    uint64_t w = atomic_load_explicit((_Atomic uint64_t *)slot, memory_order_acquire);
    struct call_head head;

    if (w < PUBLISHED(n))
        return RING_NOT_YET;
    if (w > PUBLISHED(n))
        return RING_GONE;
    *ours = 0;
    words_load(&head, slot + 64, sizeof head);
    for (uint32_t i = 0; i < head.n_items && i < g->max_items && !*ours; i++) {
        uint16_t owner[MAX_NODES] = {0};
        words_load(owner, at + i * sizeof(struct call_item) + offsetof(struct call_item, owner),
                   sizeof owner);
        for (uint32_t k = 0; k < g->n_nodes; k++)
            *ours |= owner[k] == outbox;
    }
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit((_Atomic uint64_t *)slot, memory_order_relaxed) != PUBLISHED(n))
        return RING_GONE;
    return RING_TAKEN;
}
static inline int call_is_open(const struct geometry *g, struct calls *c, uint64_t n)
{
    return atomic_load_explicit(call_word(g, c, n), memory_order_acquire) == PUBLISHED(n);
}
