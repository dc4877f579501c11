/* A model in several files: their names and what they must agree on. Private to gguf.c. */
#pragma once
#include <stddef.h>

#include "coordinator/model/gguf_front.h"
#include "shm/err.h"

/* Is path PREFIX-00001-of-00003.gguf? Then 1, with the number (from 1) and the total as written. */
int split_name(const char *path, unsigned *no, unsigned *total);
/* The name of shard no (from 1) beside path, whose split_name is 1. To be freed; NULL: no memory.
 */
char *split_sibling(const char *path, unsigned no);

/* From one shard to all: takes `one` (opened from its path) over and hands over an array of *n
 * fronts in the order of their numbers; a file without split keys is the only one. The shards'
 * keys, counts and names of files are checked, names of tensors are not. On failure `one` is
 * closed. */
int split_open(struct front *one, struct front **shards, size_t *n, struct err *e);
