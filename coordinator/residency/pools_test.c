/* Size classes and places: what must hold for any layers and any budget. */
#include "coordinator/residency/pools.h"

#include <stdlib.h>

#include "tests/test.h"

enum { MAX_LAYERS = 40 };

static struct expert_layer layer_of(uint32_t experts, uint32_t rows, uint64_t row_bytes,
                                    uint64_t down)
{
    struct expert_layer l = {.n_experts = experts, .top_k = 4};

    for (int m = 0; m < N_MATS; m++) {
        l.m[m].rows = rows;
        l.m[m].row_bytes = m == N_MATS - 1 ? down : row_bytes;
        l.m[m].stride = rows * l.m[m].row_bytes;
    }
    return l;
}

static uint64_t bytes_of(const struct expert_layer *l, uint32_t n_nodes)
{
    uint64_t b = 0;

    for (uint32_t k = 0; k < n_nodes; k++)
        b += slab_bytes(l, k, n_nodes);
    return b;
}

/* Q4_K_M in small: half of the layers have a larger down matrix. */
static void test_two_sizes(void)
{
    struct expert_layer layer[8];
    uint8_t size_of[8];
    struct pools p;
    struct err e = {0};
    uint64_t small, large, all;

    for (int l = 0; l < 8; l++)
        layer[l] = l == 3 ? (struct expert_layer){0} : layer_of(64, 256, 1152, l % 2 ? 1680 : 1152);
    small = bytes_of(&layer[0], 1);
    large = bytes_of(&layer[1], 1);
    all = 64 * (4 * small + 3 * large);
    CHECK(!pools_plan(layer, 8, 1, all, size_of, &p, &e), "%s", e.msg);
    CHECK(p.n == 2 && p.bytes[0] == small && p.bytes[1] == large && p.slab[1][0] == large);
    CHECK(p.places[0] == 256 && p.places[1] == 192 && p.node_bytes[0] == all);
    for (int l = 0; l < 8; l++)
        CHECK_EQ(size_of[l], l != 3 && l % 2);
    CHECK(!pools_plan(layer, 8, 1, all / 2, size_of, &p, &e), "%s", e.msg);
    CHECK(abs((int)p.places[0] - 128) <= 1 && abs((int)p.places[1] - 96) <= 1);
    CHECK(p.node_bytes[0] <= all / 2 && p.node_bytes[0] + large > all / 2);
    CHECK(!pools_plan(layer, 8, 1, large, size_of, &p, &e) && p.places[0] == 0 && p.places[1] == 1);
    CHECK(pools_plan(layer, 8, 1, large - 1, size_of, &p, &e) == -ENOSPC && strstr(e.msg, "--ram"),
          "%s", e.msg);
    e = (struct err){0};
    CHECK(pools_plan(layer, 0, 1, large, size_of, &p, &e) == -EINVAL, "%s", e.msg);
}

/* One plan of random layers. */
static int wrong_with(const struct expert_layer *layer, uint32_t n_layers, uint32_t n_nodes,
                      uint64_t ram)
{
    uint8_t size_of[MAX_LAYERS];
    struct pools p;
    struct err e = {0};
    uint64_t node[MAX_NODES] = {0}, used = 0, need = 0;
    uint32_t experts[POLICY_SIZES] = {0};
    int wrong = 0;

    if (pools_plan(layer, n_layers, n_nodes, ram, size_of, &p, &e))
        return e.code != -ENOSPC && e.code != -EINVAL;
    for (uint32_t l = 0; l < n_layers; l++) {
        need += layer[l].n_experts ? bytes_of(&layer[l], n_nodes) * layer[l].n_experts : 0;
        if (!layer[l].n_experts)
            continue;
        experts[size_of[l]] += layer[l].n_experts;
        for (uint32_t k = 0; k < n_nodes;
             k++) /* any class from its own on holds it, on every node */
            for (uint32_t s = size_of[l]; s < p.n; s++)
                wrong += slab_bytes(&layer[l], k, n_nodes) > p.slab[s][k];
    }
    wrong += !p.places[p.n - 1];
    for (uint32_t s = 0; s < p.n; s++) {
        wrong += p.places[s] > p.experts[s] || p.experts[s] != experts[s];
        used += p.places[s] * p.bytes[s];
        for (uint32_t k = 0; k < n_nodes; k++)
            node[k] += p.places[s] * p.slab[s][k];
        for (uint32_t o = 0; o < p.n;
             o++) /* the same part of every class, up to a place and its rest */
            wrong +=
                p.places[s] < p.experts[s] &&
                (p.places[s] + 2.0 + (double)p.bytes[p.n - 1] / (double)p.bytes[s]) / p.experts[s] <
                    (p.places[o] - 2.0) / p.experts[o];
    }
    for (uint32_t k = 0; k < n_nodes; k++)
        wrong += node[k] != p.node_bytes[k];
    wrong += used > ram && ram < need;
    for (uint32_t s = 0; s < p.n; s++) /* nothing that would fit is left out */
        wrong += p.places[s] < p.experts[s] && used + p.bytes[s] <= ram;
    return wrong;
}

static void test_random(void)
{
    int wrong = 0;

    for (int round = 0; round < 3000; round++) {
        struct expert_layer layer[MAX_LAYERS];
        uint32_t n = 1 + (uint32_t)rand() % MAX_LAYERS, n_nodes = 1 + (uint32_t)rand() % 4;
        int sizes = 1 + rand() % 12;
        uint64_t all = 0, largest = 0;
        for (uint32_t l = 0; l < n; l++) {
            layer[l] = layer_of(rand() % 8 ? 1 + (uint32_t)rand() % 100 : 0, 64,
                                1000 + 300 * (uint64_t)(rand() % sizes), 2000);
            if (layer[l].n_experts) {
                all += bytes_of(&layer[l], n_nodes) * layer[l].n_experts;
                largest =
                    bytes_of(&layer[l], n_nodes) > largest ? bytes_of(&layer[l], n_nodes) : largest;
            }
        }
        wrong +=
            wrong_with(layer, n, n_nodes, largest + (uint64_t)((double)all * rand() / RAND_MAX));
        wrong += wrong_with(layer, n, n_nodes, largest);
        wrong += wrong_with(layer, n, n_nodes, all);
    }
    CHECK_EQ(wrong, 0);
}

int main(void)
{
    srand(1);
    test_two_sizes();
    test_random();
    return test_end();
}
