/* Slots lie one after the other in each card's pool, overlap nowhere, and hold their class's experts. */
#include "coordinator/residency/card_plan.h"

#include <stdlib.h>

#include "tests/test.h"

enum { LAYERS = 4, EXPERTS = 10 };

static void make_layers(struct expert_layer *layer)
{
    for (uint32_t l = 0; l < LAYERS; l++) {
        layer[l] = (struct expert_layer){.n_experts = l ? EXPERTS : 0, .top_k = 2};
        for (int m = 0; m < N_MATS; m++)
            layer[l].m[m] = (struct expert_matrix){
                .rows = 64, .cols = 64, .row_bytes = l < 3 ? 100 : 400, .stride = 64 * 400, .file_off = 4096 + 7};
    }
}

static void check_slots(const struct card_plan *p, const struct expert_layer *layer, const uint8_t *size_of,
                        uint32_t n_nodes)
{
    struct card_slot *s = calloc(p->n_slots, sizeof *s);
    uint64_t end = 0;

    card_plan_slots(p, n_nodes, s);
    for (uint32_t i = 0; i < p->n_slots; i++) {
        CHECK_EQ(s[i].card, i / (p->n_slots / p->n_cards));
        CHECK_EQ(s[i].off, i % (p->n_slots / p->n_cards) ? end : 0);
        end = s[i].off + s[i].bytes;
        CHECK(end <= p->bytes, "slot %u ends at %llu", i, (unsigned long long)end);
        for (uint32_t l = 1; l < LAYERS; l++)
            for (uint32_t k = 0; size_of[l] <= s[i].size && k < n_nodes; k++)
                CHECK(s[i].part[k] + slab_bytes(&layer[l], k, n_nodes) <=
                          (k + 1 < n_nodes ? s[i].part[k + 1] : s[i].bytes),
                      "layer %u, node %u does not fit into slot %u", l, k, i);
    }
    free(s);
}

int main(void)
{
    struct expert_layer layer[LAYERS];
    uint8_t size_of[LAYERS];
    struct card_plan p;
    struct err e = {0};

    make_layers(layer);
    CHECK_EQ(card_plan(layer, LAYERS, 1, 0, 0, size_of, &p, &e), 0);
    CHECK_EQ(p.n_slots, 0);
    for (uint32_t nodes = 1; nodes <= 3; nodes++)
        for (uint32_t cards = 1; cards <= 3; cards++) {
            CHECK_EQ(card_plan(layer, LAYERS, nodes, cards, 0, size_of, &p, &e), 0);
            CHECK(p.n_slots >= 3 * EXPERTS, "%u slots for all experts", p.n_slots);
            check_slots(&p, layer, size_of, nodes);
            CHECK_EQ(card_plan(layer, LAYERS, nodes, cards, p.bytes / 3, size_of, &p, &e), 0);
            CHECK(p.n_slots >= cards && p.n_slots < cards * 3 * EXPERTS, "%u slots", p.n_slots);
            check_slots(&p, layer, size_of, nodes);
        }
    CHECK_EQ(card_plan(layer, LAYERS, 1, 1, 5000, size_of, &p, &e), -ENOSPC);
    return test_end();
}
