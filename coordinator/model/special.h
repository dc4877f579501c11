/* Finds the names of special tokens in text: leftmost, then longest, one pass. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "coordinator/model/text_span.h"
#include "shm/err.h"

struct special_name {
    const char *text; /* borrowed, n > 0 bytes */
    uint32_t n, id;
};

/* Names sorted by their bytes, and where those with each first byte lie. */
struct special {
    struct special_name *names;
    size_t n;
    uint32_t first[257];
};

/* Takes over names (n of them, any order; of two equal ones the later id stays). */
void special_init(struct special *s, struct special_name *names, size_t n);
void special_free(struct special *s);
/* The first match in text[p .. n): 1, and its place and id; 0: none. */
int special_find(const struct special *s, const char *text, size_t p, size_t n, size_t *at,
                 size_t *len, uint32_t *id);
/* The same in a text of which some bytes, the spans from *k on, are a user's: names of `all` may not touch
 * those, names of `user` (a part of all) may. *k moves on with p; begin with 0. */
int special_find_outside(const struct special *all, const struct special *user, const struct text_span *span,
                         size_t n_span, size_t *k, const char *text, size_t p, size_t n, size_t *at, size_t *len,
                         uint32_t *id);
