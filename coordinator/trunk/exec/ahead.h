/* A guess at the next layer's choice: the operations between the residual and the next router, done on the residual
 * as it is before this layer's experts have answered. Nothing of it enters a result; it only says what is worth
 * reading. */
#pragma once
#include <stdint.h>

#include "coordinator/trunk/exec/program.h"

struct exec;
struct moe;
enum {
    AHEAD_TOKENS = 4, /* passes of more tokens use most experts anyway */
    AHEAD_OPS = 16    /* between a residual and a router: 12 where gates of low rank mix streams */
};

struct ahead_layer {
    uint32_t layer, n;
    uint32_t op[AHEAD_OPS]; /* numbers of operations, ascending, the last one the router's; n 0: no later router, or
                             * none that follows from the residual by operations on single rows */
};
/* The layer behind the OP_MOE_CALL at op `at`. */
struct ahead_layer ahead_find(const struct program *p, uint32_t at);

/* Buffers of the guesses' own: the pass that is under way must not see them. */
struct ahead_guess;
/* 0 and *out, which ahead_close ends (NULL is fine); -1: no memory. Of an executor whose buffers are there. */
int ahead_open(const struct exec *x, struct ahead_guess **out);
void ahead_close(struct ahead_guess *g);
/* The leader's, after the call of op `at` has been published: tells m what the next layer is likely to choose. */
void ahead_guess(const struct exec *x, struct ahead_guess *g, uint32_t at, struct moe *m);
