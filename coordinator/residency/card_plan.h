/* How cards' memory is cut into slots for experts, by size class (pools.h): the classes are the same on every
 * card, how many slots of each it has is its own. Pure arithmetic. */
#pragma once
#include "coordinator/residency/pools.h"

struct card_plan {
    uint32_t n_cards;
    uint32_t n_slots;              /* of all cards */
    struct pools pools;            /* classes; places[]: of all cards together */
    uint64_t bytes[MAX_CARDS];     /* of each card's pool */
    uint32_t places[MAX_CARDS][POLICY_SIZES];
    uint32_t slot0[MAX_CARDS + 1]; /* card c has slots [slot0[c], slot0[c + 1]) */
};
/* bytes: of each card, n_cards values; 0: so many that with as much on every card all together hold one expert of
 * `part` (1: every one). size_of: n_layers values, the size class of each layer, or NULL. -ENOSPC, with the card's number, if
 * the largest expert does not fit. n_cards 0: an empty plan. */
int card_plan(const struct expert_layer *layer, uint32_t n_layers, uint32_t n_cards, const uint64_t *bytes,
              uint32_t part, uint8_t *size_of, struct card_plan *p, struct err *e);
/* The n_slots slots, card after card, headers 0. */
void card_plan_slots(const struct card_plan *p, struct card_slot *slot);
