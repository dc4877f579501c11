/* Medians of windows: a pass that happened to miss much, or that the machine disturbed, says little. */
#include "coordinator/residency/prefetch.h"

static void begin_trial(struct prefetch *p, uint32_t pairs, uint64_t used, uint64_t wasted)
{
    p->left = 0;
    p->pairs = pairs;
    p->window = p->at = 0;
    p->sum[0] = p->sum[1] = 0;
    p->used0 = used;
    p->wasted0 = wasted;
    p->on = 1;
}

void prefetch_start(struct prefetch *p, enum prefetch_mode mode)
{
    *p = (struct prefetch){.mode = mode, .on = mode != PREFETCH_OFF};
    if (mode == PREFETCH_AUTO)
        begin_trial(p, PREFETCH_FIRST, 0, 0);
}

/* Of ns[1 ..]. */
static double median(const struct prefetch *p)
{
    uint64_t v[PREFETCH_WINDOW - 1];
    uint32_t n = 0;

    for (uint32_t i = 1; i < PREFETCH_WINDOW; i++) {
        uint32_t k = n++;
        for (; k > 0 && v[k - 1] > p->ns[i]; k--)
            v[k] = v[k - 1];
        v[k] = p->ns[i];
    }
    return (double)v[n / 2];
}

static void decide(struct prefetch *p, uint64_t used, uint64_t wasted)
{
    double u = (double)(used - p->used0), w = (double)(wasted - p->wasted0);

    p->gain = p->sum[0] > 0 ? 1 - p->sum[1] / p->sum[0] : 0;
    p->settled = p->gain > (p->settled ? PREFETCH_LOSS : PREFETCH_GAIN) && w <= PREFETCH_WASTE * u;
    p->on = p->settled;
    p->left = PREFETCH_SETTLED;
    p->trials++;
}

void prefetch_passed(struct prefetch *p, uint64_t ns, uint64_t used, uint64_t wasted)
{
    if (p->mode != PREFETCH_AUTO)
        return;
    if (p->left) {
        if (!--p->left)
            begin_trial(p, PREFETCH_AGAIN, used, wasted);
        return;
    }
    p->ns[p->at++] = ns;
    if (p->at < PREFETCH_WINDOW)
        return;
    p->sum[p->on] += median(p);
    p->at = 0;
    p->on = !p->on;
    if (++p->window == 2 * p->pairs)
        decide(p, used, wasted);
}
