/* Collects named results over the steps of one prompt and writes DIR/index.json (one prompt's object,
 * as in tests/golden/README.md) and DIR/tensors.bin. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "shm/err.h"

struct dump;
struct dump *dump_open(void);
void dump_close(struct dump *d);
/* Appends n_rows rows of (a, b) values (b 0: of a values), f32 or, if integer, i32, to NAME. */
void dump_rows(struct dump *d, const char *name, int integer, const void *rows, size_t n_rows,
               uint32_t a, uint32_t b);
int dump_write(struct dump *d, const char *dir, const char *arch, const char *kv, uint32_t n_vocab,
               const uint32_t *tokens, size_t n_tokens, struct err *e);
