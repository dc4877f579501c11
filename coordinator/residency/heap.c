/* The order behind "least frequently used" and behind the optimum of a replay. */
#include "coordinator/residency/heap.h"

#include <stdlib.h>
#include <string.h>

int heap_open(struct heap *h, uint32_t n, struct err *e)
{
    h->n = 0;
    h->item = malloc(((size_t)n + 1) * sizeof *h->item);
    h->at = malloc(((size_t)n + 1) * sizeof *h->at);
    h->key = malloc(((size_t)n + 1) * sizeof *h->key);
    if (!h->item || !h->at || !h->key) {
        heap_close(h);
        return err_set(e, -ENOMEM, "no memory to order %u experts", n);
    }
    memset(h->at, 0xff, ((size_t)n + 1) * sizeof *h->at);
    return 0;
}

void heap_close(struct heap *h)
{
    free(h->item);
    free(h->at);
    free(h->key);
    *h = (struct heap){0};
}

static int before(const struct heap *h, uint32_t a, uint32_t b)
{
    return h->key[a] < h->key[b] || (h->key[a] == h->key[b] && a < b);
}

static void set(struct heap *h, uint32_t i, uint32_t id)
{
    h->item[i] = id;
    h->at[id] = i;
}

static void rise(struct heap *h, uint32_t i)
{
    uint32_t id = h->item[i];

    for (; i && before(h, id, h->item[(i - 1) / 2]); i = (i - 1) / 2)
        set(h, i, h->item[(i - 1) / 2]);
    set(h, i, id);
}

static void sink(struct heap *h, uint32_t i)
{
    uint32_t id = h->item[i];

    for (uint32_t c; (c = 2 * i + 1) < h->n; i = c) {
        if (c + 1 < h->n && before(h, h->item[c + 1], h->item[c]))
            c++;
        if (!before(h, h->item[c], id))
            break;
        set(h, i, h->item[c]);
    }
    set(h, i, id);
}

void heap_put(struct heap *h, uint32_t id, double key)
{
    if (h->at[id] == HEAP_ABSENT)
        set(h, h->n++, id);
    h->key[id] = key;
    rise(h, h->at[id]);
    sink(h, h->at[id]);
}

void heap_take(struct heap *h, uint32_t id)
{
    uint32_t i = h->at[id], last;

    if (i == HEAP_ABSENT)
        return;
    h->at[id] = HEAP_ABSENT;
    last = h->item[--h->n];
    if (last == id)
        return;
    set(h, i, last);
    rise(h, i);
    sink(h, h->at[last]);
}
