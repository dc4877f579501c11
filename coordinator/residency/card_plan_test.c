/* Slots lie one after the other in each card's pool, overlap nowhere, and hold their class's experts. */
#include "coordinator/residency/card_plan.h"

#include <stdlib.h>
#include <string.h>

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

static void check_slots(const struct card_plan *p, const struct expert_layer *layer, const uint8_t *size_of)
{
    struct card_slot *s = calloc(p->n_slots, sizeof *s);
    uint64_t end = 0;
    uint32_t card = 0;

    card_plan_slots(p, s);
    for (uint32_t i = 0; i < p->n_slots; i++) {
        if (i == p->slot0[card + 1]) {
            card++;
            end = 0;
        }
        CHECK_EQ(s[i].card, card);
        CHECK_EQ(s[i].off, end);
        CHECK_EQ(s[i].off % SLOT_ALIGN, 0);
        end = s[i].off + s[i].bytes;
        CHECK(end <= p->bytes[card], "slot %u ends at %llu", i, (unsigned long long)end);
        for (uint32_t l = 1; l < LAYERS; l++)
            CHECK(size_of[l] > s[i].size || slot_bytes(&layer[l]) <= s[i].bytes, "layer %u does not fit into slot %u",
                  l, i);
    }
    CHECK_EQ(card, p->n_cards - 1);
    free(s);
}

/* Matrices begin on multiples of SLOT_ALIGN and have SLOT_BEHIND bytes behind them. */
static void check_slot_layout(void)
{
    for (uint32_t row = 1; row < 600; row += 37) {
        struct expert_layer l = {.n_experts = 1};
        for (int m = 0; m < N_MATS; m++)
            l.m[m] = (struct expert_matrix){.rows = 3 + (uint32_t)m, .row_bytes = row};
        for (int m = 0; m < N_MATS; m++) {
            uint64_t off = slot_mat_off(&l, m), next = m + 1 < N_MATS ? slot_mat_off(&l, m + 1) : slot_bytes(&l);
            CHECK_EQ(off % SLOT_ALIGN, 0);
            CHECK(off + l.m[m].rows * l.m[m].row_bytes + SLOT_BEHIND <= next, "no room behind matrix %d", m);
        }
    }
}

int main(void)
{
    struct expert_layer layer[LAYERS];
    uint8_t size_of[LAYERS];
    struct card_plan p;
    struct err e = {0};
    uint64_t bytes[MAX_CARDS] = {0};

    make_layers(layer);
    check_slot_layout();
    CHECK_EQ(card_plan(layer, LAYERS, 0, bytes, 1, size_of, &p, &e), 0);
    CHECK_EQ(p.n_slots, 0);
    for (uint32_t cards = 1; cards <= 3; cards++) {
        memset(bytes, 0, sizeof bytes);
        CHECK_EQ(card_plan(layer, LAYERS, cards, bytes, 1, size_of, &p, &e), 0);
        CHECK(p.n_slots >= 3 * EXPERTS, "%u slots for all experts", p.n_slots);
        check_slots(&p, layer, size_of);
        for (uint32_t c = 0; c < cards; c++) /* uneven: the second half of the first, and so on */
            bytes[c] = p.bytes[0] / (c + 2);
        CHECK_EQ(card_plan(layer, LAYERS, cards, bytes, 1, size_of, &p, &e), 0);
        CHECK(p.n_slots >= cards && p.n_slots < cards * 3 * EXPERTS, "%u slots", p.n_slots);
        for (uint32_t c = 0; c < cards; c++)
            CHECK(p.bytes[c] <= bytes[c] && p.slot0[c + 1] > p.slot0[c], "card %u: %llu bytes", c,
                  (unsigned long long)p.bytes[c]);
        CHECK(cards == 1 || p.bytes[0] > p.bytes[1], "cards of different sizes are cut alike");
        check_slots(&p, layer, size_of);
    }
    memset(bytes, 0, sizeof bytes);
    CHECK_EQ(card_plan(layer, LAYERS, 2, bytes, 1, size_of, &p, &e), 0);
    bytes[0] = p.bytes[0];
    CHECK_EQ(card_plan(layer, LAYERS, 2, bytes + 1, 8, size_of, &p, &e), 0);
    CHECK(p.bytes[0] < bytes[0] / 2 && p.n_slots < 3 * EXPERTS, "an eighth is %u slots", p.n_slots);
    bytes[1] = 5000;
    CHECK_EQ(card_plan(layer, LAYERS, 2, bytes, 1, size_of, &p, &e), -ENOSPC);
    return test_end();
}
