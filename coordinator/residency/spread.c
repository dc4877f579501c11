/* Targets come from rates; where one is missing every card may have all it can hold. */
#include "coordinator/residency/spread.h"

#include <string.h>

static int measured(const struct spread_rates *r, uint32_t n_cards)
{
    int all = r->nodes.rate > 0;

    for (uint32_t c = 0; c < n_cards; c++)
        all &= r->card[c].rate > 0;
    return all;
}

void spread_plan(struct spread *s, const struct spread_rates *r, uint32_t n_cards, const uint32_t *places,
                 int all_in_ram, double bytes, double item)
{
    struct balance_device d[MAX_CARDS + 1];
    double part[MAX_CARDS + 1];
    int known = measured(r, n_cards);

    s->n_cards = n_cards;
    for (uint32_t c = 0; c < n_cards; c++) {
        s->target[c] = 1;
        s->weight[c] = known ? r->card[c].rate : places[c];
    }
    if (!known || !all_in_ram)
        return;
    memcpy(d, r->card, n_cards * sizeof *d);
    d[n_cards] = r->nodes;
    for (uint32_t i = 0; i <= n_cards; i++)
        d[i].fixed += item / d[i].rate;
    balance(d, n_cards + 1, bytes, part);
    memcpy(s->target, part, n_cards * sizeof *part);
}

int spread_card(const struct spread *s, double uses, uint32_t can)
{
    int best = -1;
    double least = 0;

    for (uint32_t c = 0; c < s->n_cards; c++) {
        double then = (s->load[c] + uses) / (s->weight[c] > 0 ? s->weight[c] : 1);
        if (!(can >> c & 1) || s->target[c] <= 0 || s->load[c] + uses > s->target[c] * (1 + SPREAD_SLACK) ||
            (best >= 0 && then >= least))
            continue;
        best = (int)c;
        least = then;
    }
    return best;
}

double spread_excess(const struct spread *s, uint32_t card)
{
    double more = s->load[card] - s->target[card] * (1 + SPREAD_SLACK);

    return more > 0 ? s->load[card] - s->target[card] : 0;
}
