/* The cards are measured by a process of their own, one after the other, while nothing else is. */
#include "coordinator/cli/plan_cards.h"

#include <stdio.h>
#include <stdlib.h>

#include "coordinator/residency/card_plan.h"
#include "coordinator/residency/plan.h"
#include "coordinator/supervise/cards_choose.h"
#include "coordinator/trunk/exec/program.h"

/* Seconds that a layer costs beside its computing where another process computes: a word there, a word back. */
static double handoff_s(const struct card_found *c)
{
    return 1e-6 * c->round_trip;
}

/* The trunk on a card: its weights at the card's rate, and a node of the graph for each operation. */
static double trunk_seconds(const struct plan_report *r, const struct card_found *c)
{
    return c->memory > 0 ? (double)r->trunk.bytes / c->memory + 1e-6 * c->node * r->look->prog->n_ops : 0;
}

static void take_rates(struct plan_report *r, uint32_t at)
{
    const struct engine_look *l = r->look;
    const struct card_plan *p = l->cards;
    struct predict_cards *out = &r->cards;

    for (uint32_t i = 0; i < p->n_cards; i++) {
        const struct card_chosen *k = &l->real->card[i];
        const struct card_found *c = &r->found->card[k->device];
        double slots = p->slot0[i + 1] - p->slot0[i];
        if (!(c->experts > 0))
            return; /* all or none: what one of them adds is not known */
        out->card[i] = (struct balance_device){c->experts / k->sharers, (int)i == l->trunk_card ? 0 : handoff_s(c),
                                               r->card_hit * slots / p->n_slots};
    }
    out->n = p->n_cards;
    out->bytes = (double)l->m->layer[at].expert_bytes * l->layer[at].top_k;
    out->all_in_ram = l->plan->slabs.resident;
    if (l->trunk_card >= 0) {
        const struct card_found *c = &r->found->card[l->real->card[l->trunk_card].device];
        out->node_fixed = handoff_s(c);
        r->in.trunk_seconds = trunk_seconds(r, c);
    }
}

int plan_cards_measure(struct plan_report *r, uint32_t at, struct err *e)
{
    const struct engine_look *l = r->look;
    const struct expert_matrix *m = l->layer[at].m;
    char shape[80];

    if (!l->cards->n_cards || !l->real->n)
        return 0;
    r->found = calloc(1, sizeof *r->found);
    if (!r->found)
        return err_set(e, -ENOMEM, "no memory");
    snprintf(shape, sizeof shape, "%u:%u:%u:%u:%u:%u", m[MAT_GATE].type, m[MAT_UP].type, m[MAT_DOWN].type, m[MAT_GATE].rows,
             m[MAT_GATE].cols, l->layer[at].top_k);
    cards_measure(shape, r->found);
    for (uint32_t i = 0; i < l->real->n; i++)
        if (l->real->card[i].device >= r->found->n)
            return err_set(e, -ENODEV, "a card has gone while it was measured%s%s", *r->found->problem ? ": " : "",
                           r->found->problem);
    take_rates(r, at);
    return 0;
}
