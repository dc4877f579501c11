/* Heat that outlives the process: one small file a model under $XDG_CACHE_HOME/conclave (or
 * ~/.cache/conclave). It is a hint: whatever is wrong with it costs a line and a cold start. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "shm/err.h"

struct gguf;

/* Which model: sizes of all shards, and a hash of their parts before the tensors' data (names,
 * shapes, types, metadata). Reads those parts. A pack has the identity of what it was made from. */
struct heat_id {
    uint64_t hash[2];
    uint64_t bytes; /* of all shards */
};
int heat_identify(const struct gguf *g, struct heat_id *id, struct err *e);

/* Where the file of a model lies. -ENOENT, with a line, if neither XDG_CACHE_HOME (absolute) nor
 * HOME is set; -ENAMETOOLONG. */
int heat_path(const struct heat_id *id, char *path, size_t cap, struct err *e);

/* uses: n_layers * n_experts decayed uses, tokens: of how many (policy_import). 0: read. 1: no such
 * file. Else negative, with a line to show, and the file is to be ignored. uses is zero then. */
int heat_load(const char *path, const struct heat_id *id, uint32_t n_layers, uint32_t n_experts,
              float *uses, double *tokens, struct err *e);
/* Replaces the file in one step; the folders are made. A failure leaves what was there. */
int heat_save(const char *path, const struct heat_id *id, uint32_t n_layers, uint32_t n_experts,
              const float *uses, double tokens, struct err *e);
