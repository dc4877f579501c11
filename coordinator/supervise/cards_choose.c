/* No card is opened here, and nothing measured: the probe did that. */
#include "coordinator/supervise/cards_choose.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* docs/MEASUREMENTS.md, "Cards: in whole runs": a graph's node costs a card about this beside its bytes ... */
#define OP_S 1.5e-6
/* ... and a thread reads weights at this rate, all together at this, out of cache; a small model's are in cache. */
#define THREAD_RATE 10e9
#define THREADS_RATE 100e9

static double gib(uint64_t bytes)
{
    return (double)bytes / (1u << 30);
}

void cards_archs_text(const char *archs, char *text, size_t n)
{
    size_t at = 0;

    *text = 0;
    while (*archs && at < n) {
        char *end;
        long a = strtol(archs, &end, 10);
        int ptx = !strncmp(end, "+ptx", 4);

        if (end == archs)
            break;
        if (ptx) /* its machine code was named before */
            at += (size_t)snprintf(text + at, n - at, " and later");
        else
            at += (size_t)snprintf(text + at, n - at, "%s%ld.%ld", at ? ", " : "", a / 10, a % 10);
        archs = end + (ptx ? 4 : 0);
        archs += strspn(archs, " ");
    }
}

/* What keeps this card from being used by `sharers` workers; 0: nothing. */
static int unfit(const struct cards_found *f, uint32_t number, uint32_t sharers, uint64_t least, struct err *e)
{
    const struct card_found *c = &f->card[number];
    char archs[200];

    if (!c->runs) {
        cards_archs_text(f->archs, archs, sizeof archs);
        return err_set(e, -ENODEV, "card %u (%s) has compute capability %u.%u, this build runs on %s: build with "
                       "CUDA_ARCH=%u", number, c->name, c->compute / 10, c->compute % 10, archs, c->compute);
    }
    if (*c->problem)
        return err_set(e, -ENODEV, "card %u (%s): %s", number, c->name, c->problem);
    if (c->free / sharers < least)
        return err_set(e, -ENOSPC, "card %u (%s) is full: %.2f GiB of %.2f GiB are free, %.2f GiB are wanted%s; end what "
                       "else uses it, or leave it out", number, c->name, gib(c->free), gib(c->total),
                       gib(least * sharers), sharers > 1 ? " for all its workers" : "");
    return 0;
}

static struct card_chosen chosen(const struct card_found *c, uint32_t sharers, uint64_t most)
{
    struct card_chosen out = {.device = c->number,
                              .sharers = sharers,
                              .free = c->free / sharers,
                              .most = most,
                              .read_only = c->registers_read_only};

    snprintf(out.name, sizeof out.name, "%s", c->name);
    return out;
}

static uint32_t times(const struct cards_wanted *w, uint32_t card)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < w->n; i++)
        n += w->card[i] == card;
    return n;
}

static int listed(const struct cards_wanted *w, const struct cards_found *f, uint64_t least, struct cards_chosen *out,
                  struct err *e)
{
    struct err why = {0};

    if (*f->problem)
        return err_set(e, -ENODEV, "--cards: %s; --cards none does without", f->problem);
    for (uint32_t i = 0; i < w->n; i++) {
        uint32_t card = w->card[i], sharers = times(w, card);
        int rc;

        if (card >= f->n && f->n == 1)
            return err_set(e, -ENODEV, "--cards: there is no card %u, only card 0 (%s)", card, f->card[0].name);
        if (card >= f->n)
            return err_set(e, -ENODEV, "--cards: there is no card %u, only cards 0 to %u", card, f->n - 1);
        if ((rc = unfit(f, card, sharers, least, &why)))
            return err_set(e, rc, "--cards: %s", why.msg);
        out->card[out->n++] = chosen(&f->card[card], sharers, w->most[i]);
    }
    return 0;
}

static void automatic(const struct cards_found *f, uint64_t least, struct cards_chosen *out)
{
    size_t at = 0;

    if (*f->problem) {
        snprintf(out->why, sizeof out->why, "no cards: %s", f->problem);
        out->notable = f->driver != 0;
        return;
    }
    for (uint32_t i = 0; i < f->n; i++) {
        struct err why = {0};
        if (!unfit(f, i, 1, least, &why)) {
            out->card[out->n++] = chosen(&f->card[i], 1, 0);
            continue;
        }
        out->notable = 1;
        if (at < sizeof out->why)
            at += (size_t)snprintf(out->why + at, sizeof out->why - at, "%s%s", at ? "; " : "not used: ", why.msg);
    }
}

int cards_choose(const struct cards_wanted *w, const struct cards_found *f, uint64_t least, struct cards_chosen *out,
                 struct err *e)
{
    memset(out, 0, sizeof *out);
    if (w->kind == CARDS_LISTED)
        return listed(w, f, least, out, e);
    if (w->kind == CARDS_AUTO)
        automatic(f, least, out);
    return 0;
}

int cards_pay(uint32_t n_ops, uint64_t bytes, uint32_t threads, char *why, size_t n)
{
    double rate = threads * THREAD_RATE < THREADS_RATE ? threads * THREAD_RATE : THREADS_RATE;

    if ((double)bytes / rate >= n_ops * OP_S)
        return 1;
    snprintf(why, n, "not used: a token reads %.1f MB of this model, which takes %u thread%s less time than a card takes "
             "for %u operations; --cards 0 uses one", 1e-6 * (double)bytes, threads, threads == 1 ? "" : "s", n_ops);
    return 0;
}
