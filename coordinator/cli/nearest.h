/* "do you mean": the known word that is closest to a mistyped one. */
#pragma once
#include <stddef.h>

/* Feed it the known words one by one; near is then the closest, NULL if none is close. */
struct nearest {
    const char *word; /* what was typed, n bytes */
    size_t n;
    const char *near; /* near_n bytes of a known word */
    size_t near_n;
    size_t changes; /* insert, delete, replace, exchange of neighbours: how many to near */
};
void nearest_begin(struct nearest *s, const char *word, size_t n);
/* known: one word or several, "a|b|c" */
void nearest_try(struct nearest *s, const char *known);
