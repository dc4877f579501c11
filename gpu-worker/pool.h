/* The memory of a card's slots: of an emulated card, private memory of its process. */
#pragma once
#include "cpu-worker/map.h"

struct pool {
    uint8_t *base;
    uint64_t bytes;
};
/* Finds the slots of card number `card` in the tables, checks them, makes the pool and tells m of it. Free with pool_drop,
 * also after an error. */
int pool_take(struct pool *p, struct maps *m, uint32_t card, struct err *e);
void pool_drop(struct pool *p);
