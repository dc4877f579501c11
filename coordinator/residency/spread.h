/* Which card an expert goes to, and whether to one at all: by parts of the uses. A card has a target, from
 * balance.h where RAM holds every expert (then what a card should not have, the nodes compute), else all that
 * fits; and a load, what its experts are used. Plain values, decisions only. */
#pragma once
#include <stdint.h>

#include "coordinator/residency/balance.h"
#include "shm/layout.h"

#define SPREAD_SLACK 0.05 /* a load moves about: more than so much above its target is too much */

struct spread {
    uint32_t n_cards;
    double target[MAX_CARDS]; /* part of all uses, in [0, 1] */
    double load[MAX_CARDS];   /* the same, now */
    double weight[MAX_CARDS]; /* who gets more: rates, or places */
};
/* What is known of the machine. rate 0 for a card or for the nodes: not measured; then there are no targets. */
struct spread_rates {
    struct balance_device nodes, card[MAX_CARDS]; /* card[].most: what its places can have at most */
};
/* Targets and weights; loads stay. all_in_ram: the nodes can compute whatever the cards do not. bytes: of a
 * layer's experts of one token; item: of one of them, for a layer's uses come in whole experts, and what has any has
 * in the mean up to one more than its part: that counts like a hand-off. places: of each card, the weights where nothing is measured. */
void spread_plan(struct spread *s, const struct spread_rates *r, uint32_t n_cards, const uint32_t *places,
                 int all_in_ram, double bytes, double item);
/* The card for an expert with that part of the uses, of those in `can` (a bit each): the one that is left the
 * furthest below what it should have, by weight. -1: each of them has its share. */
int spread_card(const struct spread *s, double uses, uint32_t can);
/* Part of the uses that the card has too much of; 0: none. */
double spread_excess(const struct spread *s, uint32_t card);
