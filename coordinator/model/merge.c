/* A linked list of symbols and a heap of candidate pairs. Entries are never removed from the heap:
 * an entry is stale when its two symbols no longer add up to the bytes that it was made for, and
 * since symbols only grow, this is exact. */
#include "coordinator/model/merge.h"

#include <stdlib.h>

enum {
    MERGE_KEEP = 1 << 16, /* symbols whose memory is kept */
    ARY = 4,              /* children of a heap's node: four entries are a cache line */
};

int merge_reserve(struct merger *m, size_t n, struct err *e)
{
    if (n > m->cap) {
        size_t cap = n < 256 ? 256 : n;
        struct symbol *sym;

        if (cap >= NO_SYMBOL || !(sym = realloc(m->sym, cap * sizeof *sym)))
            return err_set(e, -ENOMEM, "no memory for a word of %zu bytes", n);
        m->sym = sym;
        m->cap = cap;
    }
    m->n = n;
    return 0;
}

static int push(struct merger *m, uint64_t order, uint32_t n, uint32_t id, struct err *e)
{
    size_t i, up;

    if (m->heap_n == m->heap_cap) {
        size_t cap = m->heap_cap ? 2 * m->heap_cap : 256;
        struct merge_entry *heap = realloc(m->heap, cap * sizeof *heap);

        if (!heap)
            return err_set(e, -ENOMEM, "no memory for %zu merges of a word", cap);
        m->heap = heap;
        m->heap_cap = cap;
    }
    for (i = m->heap_n++; i > 0 && order < m->heap[up = (i - 1) / ARY].order; i = up)
        m->heap[i] = m->heap[up];
    m->heap[i] = (struct merge_entry){order, n, id};
    return 0;
}

static struct merge_entry pop(struct merger *m)
{
    struct merge_entry top = m->heap[0], last = m->heap[--m->heap_n];
    size_t i = 0, first, down;

    while ((first = ARY * i + 1) < m->heap_n) {
        size_t end = first + ARY < m->heap_n ? first + ARY : m->heap_n;

        down = first;
        for (size_t k = first + 1; k < end; k++)
            if (m->heap[k].order < m->heap[down].order)
                down = k;
        if (m->heap[down].order >= last.order)
            break;
        m->heap[i] = m->heap[down];
        i = down;
    }
    m->heap[i] = last;
    return top;
}

static int consider(struct merger *m, const char *word, merge_pair *pair, const void *ctx,
                    uint32_t left, uint32_t right, struct err *e)
{
    const struct symbol *l = &m->sym[left], *r = &m->sym[right];
    uint32_t key, id;

    if (!pair(ctx, word, l, r, &key, &id))
        return 0;
    return push(m, (uint64_t)key << 32 | left, l->n + r->n, id, e);
}

int merge_all(struct merger *m, const char *word, merge_pair *pair, const void *ctx, struct err *e)
{
    uint32_t n = (uint32_t)m->n;
    int rc;

    m->heap_n = 0;
    for (uint32_t i = 0; i < n; i++) {
        m->sym[i].prev = i ? i - 1 : NO_SYMBOL;
        m->sym[i].next = i + 1 < n ? i + 1 : NO_SYMBOL;
    }
    for (uint32_t i = 0; i + 1 < n; i++)
        if ((rc = consider(m, word, pair, ctx, i, i + 1, e)) < 0)
            return rc;
    while (m->heap_n) {
        struct merge_entry top = pop(m);
        uint32_t left = (uint32_t)top.order, right;
        struct symbol *l = &m->sym[left], *r;

        if (!l->n || (right = l->next) == NO_SYMBOL)
            continue;
        r = &m->sym[right];
        if (l->n + r->n != top.n)
            continue;
        l->n = top.n;
        l->id = top.id;
        l->next = r->next;
        r->n = 0;
        if (l->next != NO_SYMBOL) {
            m->sym[l->next].prev = left;
            if ((rc = consider(m, word, pair, ctx, left, l->next, e)) < 0)
                return rc;
        }
        if (l->prev != NO_SYMBOL && (rc = consider(m, word, pair, ctx, l->prev, left, e)) < 0)
            return rc;
    }
    return 0;
}

void merge_trim(struct merger *m)
{
    if (m->cap > MERGE_KEEP || m->heap_cap > 4 * MERGE_KEEP)
        merge_free(m);
}

void merge_free(struct merger *m)
{
    free(m->sym);
    free(m->heap);
    *m = (struct merger){0};
}
