/* The memory of a card's slots. */
#pragma once
#include "cpu-worker/map.h"
#include "gpu-worker/card.h"

struct pool {
    uint8_t *base;
    uint64_t bytes;
};
/* Finds the slots of card number `number` in the tables, checks them, takes their memory from the card (until
 * card_close) and tells m of it: m->pool is the card's address, which is no address here if the card is real. */
int pool_take(struct pool *p, struct maps *m, uint32_t number, struct card *card, struct err *e);
