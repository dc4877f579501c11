/* Which kind of card a name means. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu-worker/card_kind.h"
#include "shm/ctl.h"

#define MOST_DEVICES 1024

int card_open(const char *device, struct card **out, struct err *e)
{
    char *end;
    long n;

    if (!strcmp(device, "emu"))
        return card_emu_open(out, e);
    n = strtol(device, &end, 10);
    if (*device < '0' || *device > '9' || *end || n >= MOST_DEVICES)
        return err_set(e, -EPROTO, "'%.40s' is no card (wanted: emu, or a card's number)", device);
    return card_cuda_open((int)n, out, e);
}

void card_close(struct card *c)
{
    if (c)
        c->kind->close(c);
}
int card_real(const struct card *c)
{
    return c->device >= 0;
}
int card_device(const struct card *c)
{
    return c->device;
}
const char *card_name(const struct card *c)
{
    return c->name;
}
void card_die(int ctl, const struct err *e)
{
    ctl_sendf(ctl, CTL_ERROR, 0, "%s", e->msg);
    _exit(1);
}
int card_use(struct card *c, struct err *e)
{
    return c->kind->use(c, e);
}
int card_alloc(struct card *c, uint64_t bytes, const char *what, void **out, struct err *e)
{
    return c->kind->alloc(c, bytes, what, out, e);
}
int card_shared(struct card *c, uint64_t bytes, const char *what, void **host, void **dev, struct err *e)
{
    return c->kind->shared(c, bytes, what, host, dev, e);
}
int card_map(struct card *c, const void *host, uint64_t bytes, int writable, void **dev, struct err *e)
{
    return c->kind->map(c, host, bytes, writable, dev, e);
}
uint64_t card_free_bytes(struct card *c)
{
    return c->kind->free_bytes(c);
}
int card_copy_in(struct card *c, void *dev, const void *host, uint64_t bytes, struct err *e)
{
    return c->kind->copy_in(c, dev, host, bytes, e);
}
int card_copy_out(struct card *c, void *host, const void *dev, uint64_t bytes, struct err *e)
{
    return c->kind->copy_out(c, host, dev, bytes, e);
}
int card_mark(struct card *c, unsigned mark, struct err *e)
{
    return c->kind->mark(c, mark, e);
}
int card_marked(struct card *c, unsigned mark, struct err *e)
{
    return c->kind->marked(c, mark, e);
}
