/* A binary heap of numbered things, smallest key first; a thing's key can be changed. Where keys
 * are equal, the smaller number comes first. */
#pragma once
#include <stdint.h>

#include "shm/err.h"

#define HEAP_ABSENT UINT32_MAX

struct heap {
    uint32_t n;     /* things in it */
    uint32_t *item; /* item[0] has the smallest key */
    uint32_t *at;   /* by number: where in item, or HEAP_ABSENT */
    double *key;    /* by number */
};

/* For the numbers below n. */
int heap_open(struct heap *h, uint32_t n, struct err *e);
void heap_close(struct heap *h); /* a zeroed one too */
/* Puts it in, or changes its key. */
void heap_put(struct heap *h, uint32_t id, double key);
/* Takes it out, if it is in. */
void heap_take(struct heap *h, uint32_t id);
