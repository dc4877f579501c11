/* Sorted names are a trie without nodes: all names with a common beginning are neighbours, and each
 * further byte of the text narrows the range by binary search. So hundreds of names with the
 * same first character cost no more than one. */
#include "coordinator/model/special.h"

#include <stdlib.h>
#include <string.h>

static int by_text(const void *pa, const void *pb)
{
    const struct special_name *a = pa, *b = pb;
    int d = memcmp(a->text, b->text, a->n < b->n ? a->n : b->n);

    if (d)
        return d;
    if (a->n != b->n)
        return a->n < b->n ? -1 : 1;
    return a->id > b->id ? -1 : a->id < b->id; /* the later id first */
}

void special_init(struct special *s, struct special_name *names, size_t n)
{
    size_t kept = 0;

    if (n)
        qsort(names, n, sizeof *names, by_text);
    for (size_t i = 0; i < n; i++)
        if (!kept || names[kept - 1].n != names[i].n ||
            memcmp(names[kept - 1].text, names[i].text, names[i].n))
            names[kept++] = names[i];
    s->names = names;
    s->n = kept;
    for (size_t i = 0, b = 0; b <= 256; b++) {
        while (i < kept && (unsigned char)names[i].text[0] < b)
            i++;
        s->first[b] = (uint32_t)i;
    }
}

void special_free(struct special *s)
{
    free(s->names);
    *s = (struct special){0};
}

/* Byte k of a name, as a number that is smallest where the name has ended. */
static int byte_at(const struct special_name *name, size_t k)
{
    return k < name->n ? (unsigned char)name->text[k] : -1;
}

/* First of names[lo .. hi) whose byte k is at least b. */
static size_t lower(const struct special *s, size_t lo, size_t hi, size_t k, int b)
{
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;

        if (byte_at(&s->names[mid], k) < b)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The longest name that text begins with. */
static const struct special_name *longest(const struct special *s, const char *text, size_t n)
{
    unsigned char first = (unsigned char)text[0];
    size_t lo = s->first[first], hi = s->first[first + 1];
    const struct special_name *best = NULL;

    for (size_t k = 1; lo < hi; k++) {
        if (s->names[lo].n == k) /* the shortest of the range comes first */
            best = &s->names[lo++];
        if (k == n)
            break;
        lo = lower(s, lo, hi, k, (unsigned char)text[k]);
        hi = lower(s, lo, hi, k, (unsigned char)text[k] + 1);
    }
    return best;
}

int special_find(const struct special *s, const char *text, size_t p, size_t n, size_t *at,
                 size_t *len, uint32_t *id)
{
    for (; p < n; p++) {
        unsigned char b = (unsigned char)text[p];
        const struct special_name *name;

        if (s->first[b] == s->first[b + 1] || !(name = longest(s, text + p, n - p)))
            continue;
        *at = p;
        *len = name->n;
        *id = name->id;
        return 1;
    }
    return 0;
}

int special_find_outside(const struct special *all, const struct special *user, const struct text_span *span,
                         size_t n_span, size_t *k, const char *text, size_t p, size_t n, size_t *at, size_t *len,
                         uint32_t *id)
{
    for (; p < n; p++) {
        const struct special_name *name, *other;
        size_t free; /* bytes from p on that are no user's */

        while (*k < n_span && span[*k].end <= p)
            ++*k;
        free = *k == n_span ? n - p : span[*k].begin > p ? span[*k].begin - p : 0;
        name = free ? longest(all, text + p, free) : NULL;
        other = longest(user, text + p, n - p);
        if (!name || (other && other->n > name->n))
            name = other;
        if (!name)
            continue;
        *at = p;
        *len = name->n;
        *id = name->id;
        return 1;
    }
    return 0;
}
