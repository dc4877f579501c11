/* Records which experts the router chose: an .npy file [tokens, layers, experts used] of the tokens in
 * the order in which the trunk passed them, layers that have experts only, the best expert first. u8
 * for up to 256 experts a layer, else u16. `conclave simulate --routes` reads it. */
#pragma once
#include <stdint.h>

#include "shm/err.h"
#include "shm/layout.h"

struct routes;
/* The file is made, or emptied at the first token. max_tokens: of a pass. -ENOTSUP: layers that use
 * different numbers of experts cannot be one array. */
int routes_open(const char *path, const struct expert_layer *layer, uint32_t n_layers,
                uint32_t max_tokens, struct routes **out, struct err *e);
/* A pass begins; the one before is complete. */
void routes_step(struct routes *r, uint32_t n_tokens);
/* ids (n_tokens, used), as the router gave them. */
void routes_layer(struct routes *r, uint32_t layer, uint32_t used, const int32_t *ids);
/* Writes what is left; the first thing that went wrong is in *e. Without a token (a run that could not
 * begin) the file is as it was before routes_open. Frees. NULL: nothing to do. */
int routes_close(struct routes *r, struct err *e);
