/* API keys of a server. */
#pragma once
#include <stddef.h>

#include "shm/err.h"

struct keys {
    char *text; /* owned; what key[] points into */
    const char **key;
    size_t n;
};
/* list: keys with commas between, or NULL; path: a file with one a line (# begins a comment), or NULL. For
 * keys_free, which overwrites them. */
int keys_read(const char *list, const char *path, struct keys *out, struct err *e);
void keys_free(struct keys *k);
