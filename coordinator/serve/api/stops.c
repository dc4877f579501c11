/* Plain comparison: few texts, short ones, and each byte is looked at once or twice. */
#include "coordinator/serve/api/stops.h"

#include <string.h>

int stops_find(const struct stops *s, const char *text, size_t n, size_t from, int whole, size_t *at, size_t *which)
{
    for (size_t p = from; p < n; p++) {
        int begins = 0;

        for (size_t k = 0; k < s->n; k++) {
            size_t m = s->len[k] < n - p ? s->len[k] : n - p;

            if (memcmp(text + p, s->text[k], m))
                continue;
            if (m == s->len[k]) {
                *at = p;
                *which = k;
                return 1;
            }
            begins = !whole;
        }
        /* one that may still be completed: what begins later could only win if this one does not */
        if (begins) {
            *at = p;
            return 0;
        }
    }
    *at = n;
    return 0;
}
