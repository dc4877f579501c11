/* Reckons with the mean over all numbers of absent experts, since reading three at once takes less than
 * three times one. */
#include "coordinator/residency/predict.h"

#include <stdlib.h>

/* Chance of exactly j of n, each with chance p. */
static double binomial(uint32_t n, uint32_t j, double p)
{
    double c = 1;

    for (uint32_t i = 0; i < j; i++)
        c *= p * (double)(n - i) / (double)(i + 1);
    for (uint32_t i = j; i < n; i++)
        c *= 1 - p;
    return c;
}

/* Seconds of a layer where cards and nodes compute at the same time and nothing is read. The nodes' rate is
 * that of the layer which they compute alone. */
static double shared_layer(const struct predict_in *p, double miss, struct predict_out *o)
{
    const struct predict_cards *c = p->cards;
    struct balance_device d[MAX_CARDS + 1];
    double part[MAX_CARDS + 1], on_cards = 0, end;

    for (uint32_t i = 0; i < c->n; i++) {
        d[i] = c->card[i];
        on_cards += d[i].most;
    }
    d[c->n] = (struct balance_device){c->bytes / p->seconds[0], c->node_fixed,
                                      c->all_in_ram ? 1 : on_cards < 1 - miss ? 1 - miss - on_cards : 0};
    end = balance(d, c->n + 1, c->bytes, part);
    for (uint32_t i = 0; i < c->n; i++)
        o->part[i] = part[i];
    return end;
}

struct predict_out predict(const struct predict_in *p)
{
    struct predict_out o = {0};
    double miss = p->hit > 1 ? 0 : p->hit < 0 ? 1 : 1 - p->hit, layer = 0, best = p->seconds[0], cards = 0;

    if (miss > 0)
        for (uint32_t j = 0; j <= p->used; j++)
            layer += binomial(p->used, j, miss) * p->seconds[j];
    else
        layer = p->seconds[0];
    if (p->cards) { /* what is read costs as much more as it does without cards */
        best = shared_layer(p, miss, &o);
        layer = best + (layer - p->seconds[0]);
    }
    for (uint32_t i = 0; p->cards && i < p->cards->n; i++)
        cards += o.part[i];
    o.experts_seconds = layer * p->layers;
    o.seconds = p->trunk_seconds + o.experts_seconds;
    o.tokens_per_s = o.seconds > 0 ? 1 / o.seconds : 0;
    o.best_seconds = p->trunk_seconds + best * p->layers;
    o.card_bytes = cards * (double)p->expert_bytes;
    o.memory_bytes = (1 - miss - cards > 0 ? 1 - miss - cards : 0) * (double)p->expert_bytes;
    o.disk_bytes = miss * (double)p->read_bytes;
    return o;
}

static int hotter(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return x < y ? 1 : x > y ? -1 : 0;
}

double predict_hottest(float *uses, uint64_t n_uses, uint64_t n)
{
    double all = 0, hot = 0;

    qsort(uses, n_uses, sizeof *uses, hotter);
    for (uint64_t i = 0; i < n_uses; i++) {
        all += (double)uses[i];
        if (i < n)
            hot += (double)uses[i];
    }
    return all > 0 ? hot / all : 0;
}
