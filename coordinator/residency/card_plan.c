/* No I/O: bytes become slots. */
#include "coordinator/residency/card_plan.h"

static uint64_t all_bytes(const struct expert_layer *layer, uint32_t n_layers, uint32_t n_nodes, uint64_t *largest)
{
    uint64_t all = 0;

    *largest = 0;
    for (uint32_t l = 0; l < n_layers; l++) {
        uint64_t b = 0;
        for (uint32_t k = 0; layer[l].n_experts && k < n_nodes; k++)
            b += slab_bytes(&layer[l], k, n_nodes);
        if (b > *largest)
            *largest = b;
        all += b * layer[l].n_experts;
    }
    return all;
}

int card_plan(const struct expert_layer *layer, uint32_t n_layers, uint32_t n_nodes, uint32_t n_cards,
              uint64_t bytes, uint8_t *size_of, struct card_plan *p, struct err *e)
{
    uint64_t largest, all = all_bytes(layer, n_layers, n_nodes, &largest);
    int rc;

    *p = (struct card_plan){.n_cards = n_cards};
    if (!n_cards)
        return 0;
    if (!bytes) /* a class's places are whole numbers on every card */
        bytes = all / n_cards + POLICY_SIZES * largest;
    if (bytes < largest)
        return err_set(e, -ENOSPC, "--cards: %llu bytes hold no expert: one takes %llu",
                       (unsigned long long)bytes, (unsigned long long)largest);
    rc = pools_plan(layer, n_layers, n_nodes, bytes, size_of, &p->pools, e);
    if (rc)
        return rc;
    for (uint32_t s = 0; s < p->pools.n; s++) {
        p->n_slots += n_cards * p->pools.places[s];
        p->bytes += p->pools.places[s] * p->pools.bytes[s];
    }
    return 0;
}

void card_plan_slots(const struct card_plan *p, uint32_t n_nodes, struct card_slot *slot)
{
    for (uint32_t card = 0; card < p->n_cards; card++) {
        uint64_t at = 0;
        for (uint32_t s = 0; s < p->pools.n; s++)
            for (uint32_t i = 0; i < p->pools.places[s]; i++, at += p->pools.bytes[s], slot++) {
                *slot = (struct card_slot){.off = at, .bytes = p->pools.bytes[s], .card = card, .size = s};
                for (uint32_t k = 1; k < n_nodes; k++)
                    slot->part[k] = slot->part[k - 1] + p->pools.slab[s][k - 1];
            }
    }
}
