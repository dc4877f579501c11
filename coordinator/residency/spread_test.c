/* Experts with uneven uses over uneven cards: the fast one gets more, a slow one its share and no more, without
 * measurements the places decide; and who has too much gives it back. */
#include "coordinator/residency/spread.h"

#include <math.h>

#include "tests/test.h"

enum { EXPERTS = 400 };
#define BYTES 200e6

/* Part of the uses of expert i: a harmonic series, as a hot set is. */
static double uses_of(int i)
{
    static double all;

    if (all <= 0)
        for (int k = 0; k < EXPERTS; k++)
            all += 1. / (k + 10);
    return 1. / (i + 10) / all;
}

/* The hottest first, as they are admitted; at most places[c] on a card. Returns the nodes' part. */
static double fill(struct spread *s, const uint32_t *places, uint32_t *held)
{
    double nodes = 0;

    for (int i = 0; i < EXPERTS; i++) {
        uint32_t can = 0;
        int c;
        for (uint32_t k = 0; k < s->n_cards; k++)
            can |= (uint32_t)(held[k] < places[k]) << k;
        c = spread_card(s, uses_of(i), can);
        if (c < 0) {
            nodes += uses_of(i);
            continue;
        }
        CHECK(can >> c & 1, "card %d cannot", c);
        s->load[c] += uses_of(i);
        held[c]++;
    }
    return nodes;
}

int main(void)
{
    const uint32_t plenty[3] = {EXPERTS, EXPERTS, EXPERTS};
    struct spread_rates r = {.nodes = {50e9, 0, 1}};
    struct spread s = {0};
    uint32_t held[3] = {0}, places[3];
    double nodes;

    /* nothing is measured: all of them, evenly by places */
    places[0] = 300, places[1] = 100;
    spread_plan(&s, &r, 2, places, 1, BYTES, 0);
    fill(&s, places, held);
    CHECK(held[0] + held[1] == EXPERTS, "%u and %u of %d", held[0], held[1], EXPERTS);
    CHECK(held[0] == 300 && s.load[1] > 0.15, "the larger card has more: %u, %u", held[0], held[1]);
    CHECK(spread_excess(&s, 0) <= 0 && spread_excess(&s, 1) <= 0, "no targets, no excess");

    /* two slow cards, one twice as fast, RAM has all: 1/5 and 2/5, the nodes 2/5 */
    s = (struct spread){0};
    r.card[0] = (struct balance_device){25e9, 0, 1};
    r.card[1] = (struct balance_device){50e9, 0, 1};
    memset(held, 0, sizeof held);
    spread_plan(&s, &r, 2, plenty, 1, BYTES, 0);
    nodes = fill(&s, plenty, held);
    CHECK(fabs(s.load[0] - 0.2) < 0.2 * 2 * SPREAD_SLACK && fabs(s.load[1] - 0.4) < 0.4 * 2 * SPREAD_SLACK,
          "loads %g and %g", s.load[0], s.load[1]);
    CHECK(fabs(nodes - 0.4) < 0.05, "the nodes have %g", nodes);
    CHECK(spread_excess(&s, 0) <= 0 && spread_excess(&s, 1) <= 0, "no excess at the end");
    s.load[0] = 0.5; /* its experts have become hot */
    CHECK(fabs(spread_excess(&s, 0) - 0.3) < 1e-9, "excess %g", spread_excess(&s, 0));

    /* not all in RAM: whatever a card has need not be read; the faster one gets twice as much */
    s = (struct spread){0};
    memset(held, 0, sizeof held);
    spread_plan(&s, &r, 2, plenty, 0, BYTES, 0);
    nodes = fill(&s, plenty, held);
    CHECK(nodes <= 0 && fabs(s.load[1] / s.load[0] - 2) < 0.1, "nodes %g, loads %g and %g", nodes, s.load[0],
          s.load[1]);

    /* a fast card, and a slow one that would only keep the layer waiting */
    s = (struct spread){0};
    memset(held, 0, sizeof held);
    r.card[0] = (struct balance_device){4e12, 0, 1};
    r.card[1] = (struct balance_device){1e12, 100e-6, 1};
    r.nodes.fixed = 60e-6;
    spread_plan(&s, &r, 2, plenty, 1, BYTES, 0);
    nodes = fill(&s, plenty, held);
    CHECK(held[0] == EXPERTS && !held[1] && nodes <= 0, "%u and %u on cards, %g on nodes", held[0], held[1], nodes);
    CHECK_EQ(spread_card(&s, 0.1, 2), -1);
    CHECK_EQ(spread_card(&s, 0.1, 0), -1);
    /* three experts a layer, on a card that takes as long for one as the nodes for all: one there more than the mean
     * would keep the layer waiting, so it gets much less than the quarter that its rate would be */
    s = (struct spread){0};
    r.nodes = (struct balance_device){3e9, 0, 1};
    r.card[0] = (struct balance_device){1e9, 0, 1};
    spread_plan(&s, &r, 1, plenty, 1, BYTES, 0);
    CHECK(fabs(s.target[0] - 0.25) < 1e-6, "target %g", s.target[0]);
    spread_plan(&s, &r, 1, plenty, 1, BYTES, BYTES / 3);
    CHECK(fabs(s.target[0] - 1. / 12) < 1e-6, "target %g", s.target[0]);
    return test_end();
}
