/* Merging neighbours, best pair first, leftmost among equals: what BPE and SPM have in common.
 *
 * A word is a list of symbols over its bytes. The caller says which two neighbours may merge, how
 * well (a smaller key is better) and into which token. O(n log n) for n symbols. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "shm/err.h"

#define NO_TOKEN UINT32_MAX

struct symbol {
    uint32_t at, n; /* bytes of the word; n 0: merged into the one before */
    uint32_t id;    /* NO_TOKEN: none */
    uint32_t prev, next;
};

struct merge_entry {
    uint64_t order; /* key << 32 | left symbol */
    uint32_t n;     /* bytes of both when it was made */
    uint32_t id;    /* of the product */
};

/* Scratch, owned by the user, zero at the start; kept from word to word. */
struct merger {
    struct symbol *sym;
    size_t n, cap;
    struct merge_entry *heap;
    size_t heap_n, heap_cap;
};

/* May left and right merge? 1: *key and *id are set. */
typedef int merge_pair(const void *ctx, const char *word, const struct symbol *left,
                       const struct symbol *right, uint32_t *key, uint32_t *id);

/* Room for n symbols (n < 2^32 - 1). The caller then fills sym[0 .. n) but for prev and next. */
int merge_reserve(struct merger *m, size_t n, struct err *e);
/* Merges sym[0 .. n) until no pair is left. The survivors are those reached from sym[0] by next,
 * until NO_SYMBOL. */
#define NO_SYMBOL UINT32_MAX
int merge_all(struct merger *m, const char *word, merge_pair *pair, const void *ctx, struct err *e);
/* Gives memory back that only a very long word needs. */
void merge_trim(struct merger *m);
void merge_free(struct merger *m);
