/* How cards' memory is cut into slots for experts: every card alike, by size class (pools.h), a node's part
 * of the expert after the other as in its slabs. Pure arithmetic. */
#pragma once
#include "coordinator/residency/pools.h"

struct card_plan {
    uint32_t n_cards;
    uint64_t bytes;      /* of a card's pool */
    uint32_t n_slots;    /* of all cards */
    struct pools pools;  /* of one card */
};
/* bytes: of each card; 0: so many that all cards together hold every expert. size_of: n_layers values, the
 * size class of each layer, or NULL. -ENOSPC if the largest expert does not fit. n_cards 0: an empty plan. */
int card_plan(const struct expert_layer *layer, uint32_t n_layers, uint32_t n_nodes, uint32_t n_cards,
              uint64_t bytes, uint8_t *size_of, struct card_plan *p, struct err *e);
/* The n_slots slots, card after card, headers 0. */
void card_plan_slots(const struct card_plan *p, uint32_t n_nodes, struct card_slot *slot);
