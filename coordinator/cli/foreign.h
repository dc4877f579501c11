/* llama.cpp's flags that have no flag of the same name here. Each is translated, or accepted
 * because it asks for what happens anyway, or refused; always with one line that says which. */
#pragma once
#include <stddef.h>

struct foreign {
    const char *names;  /* as typed: "-ngl|--gpu-layers|--n-gpu-layers" */
    const char *values; /* NULL: takes none. "*": any. "0|auto": these are accepted, others refused.
                           "?on|off": a value is there only if it is one of these */
    const char *to;     /* translated to this long flag of ours, with its value; else NULL */
    enum foreign_rule {
        FOREIGN_OK,
        FOREIGN_REFUSED,
        FOREIGN_ALIKE
    } rule;          /* ALIKE: all flags of one `to`
must be given the same value */
    const char *why; /* the rest of the line */
};

/* The entry of a word (n bytes, without "=value"), or NULL. serve: what llama-server means by it comes first. */
const struct foreign *foreign_find(const char *word, size_t n, int serve);
/* 1: s (n bytes) is one of "a|b|c". An underscore in s counts as a dash. */
int word_in(const char *list, const char *s, size_t n);
