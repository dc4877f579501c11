/* Collects named results over the steps of one prompt and writes DIR/index.json (one prompt's object,
 * as in tests/golden/README.md) and DIR/tensors.bin. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "shm/err.h"

struct dump;
struct dump *dump_open(void);
void dump_close(struct dump *d);
/* n[0] rows of (n[1]), (n[1], n[2]) or (n[1], n[2], n[3]) values, f32 or, if integer, i32: appended to NAME,
 * or, if whole, in place of what was told of it before. */
void dump_rows(struct dump *d, const char *name, int integer, int whole, const void *rows, const size_t n[4]);
int dump_write(struct dump *d, const char *dir, const char *arch, const char *kv, uint32_t n_vocab,
               const uint32_t *tokens, size_t n_tokens, struct err *e);
