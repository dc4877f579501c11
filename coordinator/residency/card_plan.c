/* No I/O: bytes become slots. */
#include "coordinator/residency/card_plan.h"

#include <string.h>

static uint64_t all_bytes(const struct expert_layer *layer, uint32_t n_layers, uint64_t *largest)
{
    uint64_t all = 0;

    *largest = 0;
    for (uint32_t l = 0; l < n_layers; l++) {
        uint64_t b = slot_bytes(&layer[l]);
        if (b > *largest)
            *largest = b;
        all += b * layer[l].n_experts;
    }
    return all;
}

int card_plan(const struct expert_layer *layer, uint32_t n_layers, uint32_t n_cards, const uint64_t *bytes,
              uint32_t part, uint8_t *size_of, struct card_plan *p, struct err *e)
{
    uint64_t largest, all = all_bytes(layer, n_layers, &largest);
    struct pools one;
    int rc;

    *p = (struct card_plan){.n_cards = n_cards};
    for (uint32_t c = 0; c < n_cards; c++) {
        /* a class's places are whole numbers on every card */
        uint64_t room = bytes[c] ? bytes[c] : all / n_cards / part + (part > 1 ? 1 : POLICY_SIZES) * largest;
        if (room < largest)
            return err_set(e, -ENOSPC, "--cards: %llu bytes on card %u hold no expert: one takes %llu",
                           (unsigned long long)room, c, (unsigned long long)largest);
        rc = pools_plan(layer, n_layers, 0, room, size_of, &one, e);
        if (rc)
            return rc;
        memcpy(p->places[c], one.places, sizeof one.places);
        p->slot0[c] = p->n_slots;
        for (uint32_t s = 0; s < one.n; s++) {
            p->n_slots += one.places[s];
            p->bytes[c] += one.places[s] * one.bytes[s];
            one.places[s] += p->pools.places[s];
        }
        one.node_bytes[0] += p->pools.node_bytes[0];
        p->pools = one;
    }
    p->slot0[n_cards] = p->n_slots;
    return 0;
}

void card_plan_slots(const struct card_plan *p, struct card_slot *slot)
{
    for (uint32_t card = 0; card < p->n_cards; card++) {
        uint64_t at = 0;
        for (uint32_t s = 0; s < p->pools.n; s++)
            for (uint32_t i = 0; i < p->places[card][s]; i++, at += p->pools.bytes[s], slot++)
                *slot = (struct card_slot){.off = at, .bytes = p->pools.bytes[s], .card = card, .size = s};
    }
}
