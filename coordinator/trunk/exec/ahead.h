/* A guess at the next layer's choice: its norm and router applied to the residual as it is before this
 * layer's experts have answered. Nothing of it enters a result; it only says what is worth reading. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "coordinator/trunk/exec/program.h"

enum { AHEAD_TOKENS = 4 }; /* passes of more tokens use most experts anyway */

struct ahead_layer {
    const struct op *norm, *product, *router; /* NULL: no later router of a form that is known */
    uint32_t layer;
};
/* The layer behind the OP_MOE_CALL at op `at`. Borrows from the program. */
struct ahead_layer ahead_find(const struct program *p, uint32_t at);

struct ahead_space { /* one token's */
    float *h, *logits;
    uint8_t *form;
};
/* Room for any layer of the program. 0, or -1: no memory. Hands over *s, which ahead_free ends. */
int ahead_space(const struct program *p, struct ahead_space *s);
void ahead_free(struct ahead_space *s);

/* residual (n_embd) f32 -> ids: a->router->n[1] of them, the likeliest first. */
void ahead_choose(const struct program *p, const uint8_t *const *weight, const struct ahead_layer *a,
                  const float *residual, struct ahead_space *s, uint32_t *ids);
