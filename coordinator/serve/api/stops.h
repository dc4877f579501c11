/* Texts that end an answer, looked for in text that comes in pieces of any size. */
#pragma once
#include <stddef.h>

struct stops {
    const char *const *text; /* borrowed; n of them, none empty */
    const size_t *len;
    size_t n;
};
/* In text[0 .. n), of which nothing before `from` can be part of an occurrence: 1 and *at, *which: the first
 * occurrence (of several there the first in the list). 0 and *at: text[0 .. *at) can no longer be part of one and
 * may be given out. whole: no more text comes. */
int stops_find(const struct stops *s, const char *text, size_t n, size_t from, int whole, size_t *at, size_t *which);
