/* The order ring. A slot is written again only after its order was answered, so a copy is never
 * torn and no second look at its word is needed. */
#include "shm/orders.h"

/* The head and the pieces that count. A number of pieces that cannot be is left to the pager. */
static size_t order_size(uint32_t n_pieces)
{
    uint32_t n = n_pieces < ORDER_PIECES ? n_pieces : ORDER_PIECES;

    return offsetof(struct order, piece) + n * sizeof(struct order_piece);
}

void order_publish(const struct geometry *g, struct orders *os, const struct order *o,
                   struct bell *pager_bell, const _Atomic uint32_t *pager_asleep)
{
    struct order_slot *s = &os->slot[o->number & (g->order_slots - 1)];

    words_store(&s->order, o, order_size(o->n_pieces));
    atomic_store_explicit(&s->word, PUBLISHED(o->number), memory_order_release);
    atomic_store_explicit(&os->head, o->number, memory_order_release);
    bell_ring(pager_bell, pager_asleep);
    atomic_store_explicit(&os->rung, o->number, memory_order_release);
}

int order_take(const struct geometry *g, struct orders *os, uint64_t number, struct order *out)
{
    struct order_slot *s = &os->slot[number & (g->order_slots - 1)];

    if (atomic_load_explicit(&s->word, memory_order_acquire) != PUBLISHED(number))
        return 0;
    words_load(out, &s->order, order_size(0));
    words_load(out->piece, s->order.piece, order_size(out->n_pieces) - order_size(0));
    return 1; /* what it says is checked by the pager, with a line */
}
