/* The copy is written under a lock by whoever finds no step open, and by nobody while one is: the executor
 * reads it without. */
#include "gpu-worker/hits.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "shm/layout.h"

struct change { /* told while a step is open */
    size_t at;
    uint64_t entry;  /* came: it; clear: what shall leave */
    uint64_t number; /* of the clear's order; 0: it came */
};
struct hits {
    pthread_mutex_t lock;
    uint32_t n_experts;
    int open;              /* a step is */
    uint64_t *entry;       /* the copy */
    struct change *told;   /* in their order */
    size_t n_told, room;
    uint64_t *confirmed;   /* orders to be answered */
    uint32_t n_confirmed;
    _Atomic uint32_t confirmed_now; /* the same, for who looks without the lock */
    uint32_t *changed;     /* since the last hits_begin */
    uint8_t *is_changed;
    size_t n_changed;
};

int hits_open(uint32_t n_layers, uint32_t n_experts, uint32_t most_clears, struct hits **out, struct err *e)
{
    struct hits *h = calloc(1, sizeof *h);
    size_t n = (size_t)n_layers * n_experts;

    if (!h)
        return err_set(e, -ENOMEM, "no memory for the card's copy of the table");
    pthread_mutex_init(&h->lock, NULL);
    h->n_experts = n_experts;
    h->room = most_clears + n; /* an expert comes once until it is cleared */
    h->entry = calloc(n + 1, sizeof *h->entry);
    h->told = calloc(h->room + 1, sizeof *h->told);
    h->confirmed = calloc(most_clears + 1, sizeof *h->confirmed);
    h->changed = calloc(n + 1, sizeof *h->changed);
    h->is_changed = calloc(n + 1, 1);
    if (!h->entry || !h->told || !h->confirmed || !h->changed || !h->is_changed) {
        hits_close(h);
        return err_set(e, -ENOMEM, "no memory for the card's copy of the table: %zu experts", n);
    }
    *out = h;
    return 0;
}

void hits_close(struct hits *h)
{
    if (!h)
        return;
    pthread_mutex_destroy(&h->lock);
    free(h->entry);
    free(h->told);
    free(h->confirmed);
    free(h->changed);
    free(h->is_changed);
    free(h);
}

/* ---- with the lock, no step open ---- */

static void set(struct hits *h, size_t at, uint64_t entry)
{
    h->entry[at] = entry;
    if (!h->is_changed[at])
        h->changed[h->n_changed++] = (uint32_t)at;
    h->is_changed[at] = 1;
}

static void apply(struct hits *h, const struct change *c)
{
    if (!c->number)
        set(h, c->at, c->entry);
    else if (h->entry[c->at] == c->entry)
        set(h, c->at, 0);
}

/* Everything that was told; returns how many clears are confirmed by that. */
static int apply_all(struct hits *h)
{
    int n = 0;

    for (size_t i = 0; i < h->n_told; i++) {
        apply(h, &h->told[i]);
        if (!h->told[i].number)
            continue;
        h->confirmed[h->n_confirmed++] = h->told[i].number;
        n++;
    }
    h->n_told = 0;
    atomic_store_explicit(&h->confirmed_now, h->n_confirmed, memory_order_release);
    return n;
}

/* ---- the orders' thread ---- */

/* 1: it was put off. */
static int tell(struct hits *h, struct change c)
{
    int open;

    pthread_mutex_lock(&h->lock);
    open = h->open;
    if (!open)
        apply(h, &c);
    assert(h->n_told < h->room); /* see hits_open */
    if (open)
        h->told[h->n_told++] = c;
    pthread_mutex_unlock(&h->lock);
    return open;
}

void hits_came(struct hits *h, uint32_t layer, uint32_t expert, uint32_t place, uint64_t epoch)
{
    tell(h, (struct change){(size_t)layer * h->n_experts + expert, ENTRY(place, epoch), 0});
}

int hits_clear(struct hits *h, uint32_t layer, uint32_t expert, uint32_t place, uint64_t epoch, uint64_t number)
{
    return tell(h, (struct change){(size_t)layer * h->n_experts + expert, ENTRY(place, epoch), number});
}

uint64_t hits_confirmed(struct hits *h)
{
    uint64_t number = 0;

    pthread_mutex_lock(&h->lock);
    if (h->n_confirmed)
        number = h->confirmed[--h->n_confirmed];
    atomic_store_explicit(&h->confirmed_now, h->n_confirmed, memory_order_release);
    pthread_mutex_unlock(&h->lock);
    return number;
}

int hits_look(const struct hits *h)
{
    return atomic_load_explicit(&h->confirmed_now, memory_order_acquire) > 0;
}

/* ---- the executor ---- */

void hits_begin(struct hits *h, const uint32_t **changed, size_t *n)
{
    pthread_mutex_lock(&h->lock);
    /* what was told while none was open is applied already */
    h->open = 1;
    for (size_t i = 0; i < h->n_changed; i++)
        h->is_changed[h->changed[i]] = 0;
    if (changed)
        *changed = h->changed;
    if (n)
        *n = h->n_changed;
    h->n_changed = 0;
    pthread_mutex_unlock(&h->lock);
}

uint64_t hits_entry(const struct hits *h, uint32_t layer, uint32_t expert)
{
    return h->entry[(size_t)layer * h->n_experts + expert];
}

const uint64_t *hits_entries(const struct hits *h)
{
    return h->entry;
}

int hits_end(struct hits *h)
{
    int n;

    pthread_mutex_lock(&h->lock);
    h->open = 0;
    n = apply_all(h);
    pthread_mutex_unlock(&h->lock);
    return n > 0;
}
