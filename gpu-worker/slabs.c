/* Registers, chunk after chunk; nothing is unregistered before the process ends, for that would wait for every
 * kernel that runs. */
#define _GNU_SOURCE
#include "gpu-worker/slabs.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "shm/bell.h"

#define CHUNK (64ull << 20) /* a few milliseconds each: other calls of the card wait for one */

struct slabs {
    struct card *card;
    const struct maps *m;
    int ctl, writable[MAX_NODES];
    _Atomic uint64_t done[MAX_NODES]; /* chunks from the beginning that are registered */
    _Atomic int quit, settled;
    int running;
    pthread_t thread;
};

static int refused(struct slabs *s, uint64_t before, const struct err *why)
{
    ctl_sendf(s->ctl, CTL_LOG, 1, "%s: %.2f GiB of the experts' memory are registered, no more: %s; uploads of the rest go "
              "through a buffer, slower", card_name(s->card), (double)before / (1u << 30), why->msg);
    return -1;
}

static int register_node(struct slabs *s, uint32_t node, uint64_t *bytes)
{
    const uint8_t *base = s->m->slabs[node];
    uint64_t all = s->m->slabs_bytes[node];

    for (uint64_t at = 0; at < all && !atomic_load_explicit(&s->quit, memory_order_relaxed); at += CHUNK) {
        uint64_t n = all - at < CHUNK ? all - at : CHUNK;
        struct err why = {0};
        void *dev;
        if (card_map(s->card, base + at, n, s->writable[node], &dev, &why))
            return refused(s, *bytes, &why);
        *bytes += n;
        atomic_store_explicit(&s->done[node], at / CHUNK + 1, memory_order_release);
    }
    return 0;
}

static void register_all(struct slabs *s)
{
    uint64_t start = now_ns(), bytes = 0;
    struct err e = {0};

    if (card_use(s->card, &e)) {
        refused(s, 0, &e);
        return;
    }
    for (uint32_t k = 0; k < s->m->g.n_nodes; k++)
        if (register_node(s, k, &bytes))
            return;
    if (!atomic_load_explicit(&s->quit, memory_order_relaxed))
        ctl_sendf(s->ctl, CTL_LOG, 3, "%s: %.2f GiB of the experts' memory registered in %.2f s", card_name(s->card),
                  (double)bytes / (1u << 30), (double)(now_ns() - start) * 1e-9);
}
static void *work(void *arg)
{
    struct slabs *s = arg;

    register_all(s);
    atomic_store_explicit(&s->settled, 1, memory_order_release);
    return NULL;
}

int slabs_open(struct card *card, const struct child *c, const struct maps *m, struct slabs **out, struct err *e)
{
    struct slabs *s = calloc(1, sizeof *s);

    *out = s;
    if (!s)
        return err_set(e, -ENOMEM, "no memory");
    s->card = card;
    s->m = m;
    s->ctl = c->ctl;
    for (size_t i = 0; i < c->n_segs; i++)
        if (c->seg[i].role == SEG_SLABS && c->seg[i].index < m->g.n_nodes)
            s->writable[c->seg[i].index] = c->seg[i].writable;
    if (!card_real(card)) /* its memory is ours */
        for (uint32_t k = 0; k < m->g.n_nodes; k++)
            s->done[k] = UINT64_MAX;
    return 0;
}

int slabs_register(struct slabs *s, struct err *e)
{
    int rc = card_real(s->card) ? -pthread_create(&s->thread, NULL, work, s) : 0;

    if (rc)
        return err_set(e, rc, "cannot start a thread: %s", strerror(-rc));
    s->running = card_real(s->card);
    return 0;
}

int slabs_settled(const struct slabs *s)
{
    return atomic_load_explicit(&s->settled, memory_order_acquire);
}

void slabs_close(struct slabs *s)
{
    if (!s)
        return;
    atomic_store_explicit(&s->quit, 1, memory_order_relaxed);
    if (s->running)
        pthread_join(s->thread, NULL);
    free(s);
}

uint64_t slabs_run(const struct slabs *s, uint32_t node, uint64_t off, uint64_t bytes, int *straight)
{
    uint64_t done = atomic_load_explicit(&s->done[node], memory_order_acquire), end = (off / CHUNK + 1) * CHUNK;

    *straight = off / CHUNK < done;
    return end - off < bytes ? end - off : bytes;
}
