/* A build without CUDA. */
#include "gpu-worker/trunk_card.h"

#include <stdlib.h>

int trunk_card_open(const struct trunk_card_config *c, struct trunk_card **out, struct err *e)
{
    (void)c;
    *out = NULL;
    return err_set(e, -ENOTSUP, "this build has no CUDA code");
}
void trunk_card_close(struct trunk_card *t)
{
    (void)t;
}
int trunk_card_begin(struct trunk_card *t, const struct step *s, const uint32_t *changed, size_t n,
                     const uint64_t *entry, struct err *e)
{
    (void)t, (void)s, (void)changed, (void)n, (void)entry, (void)e;
    abort(); /* nobody has one */
}
int trunk_card_poll(struct trunk_card *t, struct err *e)
{
    (void)t, (void)e;
    abort();
}
const uint32_t *trunk_card_best(const struct trunk_card *t)
{
    (void)t;
    abort();
}
void trunk_card_stop(struct trunk_card *t)
{
    (void)t;
}
void trunk_card_break(void)
{
    abort();
}
const uint32_t *trunk_card_choice(const struct trunk_card *t, uint32_t layer, int draft, uint32_t *used)
{
    (void)t, (void)layer, (void)draft, (void)used;
    abort();
}
int trunk_card_save(struct trunk_card *t, uint32_t seq, uint32_t pos, uint32_t slot, struct err *e)
{
    (void)t, (void)seq, (void)pos, (void)slot, (void)e;
    abort();
}
int trunk_card_restore(struct trunk_card *t, uint32_t slot, struct err *e)
{
    (void)t, (void)slot, (void)e;
    abort();
}
void trunk_card_counters(const struct trunk_card *t, struct trunk_card_counters *c)
{
    (void)t, (void)c;
    abort();
}
