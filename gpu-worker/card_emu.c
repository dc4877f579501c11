/* A card made of this process's memory: what runs where there is no card. Copies are over when they return. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "gpu-worker/card_kind.h"

struct block {
    struct block *next;
    void *base;
    uint64_t bytes;
};
struct emu {
    struct card card;
    struct block *blocks;
};

static void emu_close(struct card *c)
{
    struct emu *x = (struct emu *)c;

    for (struct block *b = x->blocks, *next; b; b = next) {
        next = b->next;
        munmap(b->base, b->bytes);
        free(b);
    }
    free(x);
}
static int emu_use(struct card *c, struct err *e)
{
    (void)c, (void)e;
    return 0;
}

static int emu_alloc(struct card *c, uint64_t bytes, const char *what, void **out, struct err *e)
{
    struct emu *x = (struct emu *)c;
    struct block *b = calloc(1, sizeof *b);
    void *base = MAP_FAILED;

    if (b)
        base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (base == MAP_FAILED) {
        free(b);
        return err_set(e, -ENOMEM, "emulated card: no memory for %s, %llu bytes: give less after --cards emu:N:", what,
                       (unsigned long long)bytes);
    }
    *b = (struct block){x->blocks, base, bytes};
    x->blocks = b;
    *out = base;
    return 0;
}
static int emu_shared(struct card *c, uint64_t bytes, const char *what, void **host, void **dev, struct err *e)
{
    int rc = emu_alloc(c, bytes, what, host, e);

    if (!rc)
        *dev = *host;
    return rc;
}
static int emu_map(struct card *c, const void *host, uint64_t bytes, int writable, void **dev, struct err *e)
{
    (void)c, (void)bytes, (void)writable, (void)e;
    *dev = (void *)host;
    return 0;
}
static uint64_t emu_free(struct card *c)
{
    (void)c;
    return 0;
}

static int emu_copy(struct card *c, void *to, const void *from, uint64_t bytes, struct err *e)
{
    (void)c, (void)e;
    memcpy(to, from, bytes);
    return 0;
}
static int emu_mark(struct card *c, unsigned mark, struct err *e)
{
    (void)c, (void)mark, (void)e;
    return 0;
}
static int emu_marked(struct card *c, unsigned mark, struct err *e)
{
    (void)c, (void)mark, (void)e;
    return 1;
}

static const struct card_kind kind = {emu_close, emu_use,  emu_alloc, emu_shared, emu_map,
                                      emu_free,  emu_copy, emu_copy,  emu_mark,   emu_marked};

int card_emu_open(struct card **out, struct err *e)
{
    struct emu *x = calloc(1, sizeof *x);

    if (!x)
        return err_set(e, -ENOMEM, "no memory");
    x->card = (struct card){.kind = &kind, .device = -1, .name = "emulated card"};
    *out = &x->card;
    return 0;
}
