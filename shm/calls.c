/* What a copy of a call must satisfy before any of its numbers is used as an index: its producer is
 * another process. */
#include "shm/calls.h"

uint64_t calls_bury(const struct geometry *g, struct calls *c, uint32_t *n_open)
{
    uint64_t last = 0;

    *n_open = 0;
    for (uint64_t i = 0; i < CALL_SLOTS; i++) {
        _Atomic uint64_t *word = call_word(g, c, i);
        uint64_t w = atomic_load_explicit(word, memory_order_acquire);
        if (w / 2 > last)
            last = w / 2; /* not head: it may have died between the two */
        if (w && w == PUBLISHED(w / 2)) {
            call_retire(g, c, w / 2);
            ++*n_open;
        }
    }
    atomic_store_explicit(&c->head, last, memory_order_release);
    return last + 1;
}

int call_check(const struct geometry *g, const struct call *c, struct err *e)
{
    const struct call_head *h = &c->head;

    if (h->layer >= g->n_layers || h->n_tokens > g->max_tokens || h->n_items > g->max_items ||
        h->n_pairs > g->max_pairs || h->top_k > g->top_k)
        return err_set(
            e, -EPROTO,
            "call %llu: layer %u, %u tokens, %u items, %u pairs, top-k %u: more than the "
            "geometry's",
            (unsigned long long)h->seq, h->layer, h->n_tokens, h->n_items, h->n_pairs, h->top_k);
    if (h->acts > CALLS_IN_FLIGHT * g->acts_half ||
        (uint64_t)h->n_tokens * g->n_embd * sizeof(float) >
            CALLS_IN_FLIGHT * g->acts_half - h->acts ||
        h->acts % sizeof(float))
        return err_set(e, -EPROTO, "call %llu: activations at %llu are outside of their arena",
                       (unsigned long long)h->seq, (unsigned long long)h->acts);
    for (uint32_t i = 0; i < h->n_items; i++) {
        const struct call_item *it = &c->items[i];
        if (it->expert >= g->n_experts || it->pair0 > h->n_pairs ||
            it->n_pairs > h->n_pairs - it->pair0 ||
            (it->place != PLACE_NONE && it->place >= geometry_places(g)))
            return err_set(e, -EPROTO, "call %llu: item %u: expert %u, place %u, pairs %u+%u",
                           (unsigned long long)h->seq, i, it->expert, it->place, it->pair0,
                           it->n_pairs);
        for (uint32_t k = 0; k < g->n_nodes; k++)
            if (it->owner[k] >= MAX_PROCS ||
                (it->owner[k] != OWNER_DISK && it->place == PLACE_NONE))
                return err_set(e, -EPROTO, "call %llu: item %u: share %u: owner %u, place %u",
                               (unsigned long long)h->seq, i, k, it->owner[k], it->place);
    }
    for (uint32_t p = 0; p < h->n_pairs; p++)
        if (c->pairs[p].token >= h->n_tokens || c->pairs[p].rank >= h->top_k)
            return err_set(e, -EPROTO, "call %llu: pair %u: token %u, rank %u",
                           (unsigned long long)h->seq, p, c->pairs[p].token, c->pairs[p].rank);
    return 0;
}
