/* Size classes and their places. One place of the largest class is set aside first: with it every
 * call can be finished, whatever it names. */
#include "coordinator/residency/pools.h"

#include <string.h>

#define WASTE 16 /* a layer joins a class whose largest expert is at most 1/16 larger */

/* n_nodes 0: a slot, of one part. */
static uint32_t n_parts(uint32_t n_nodes)
{
    return n_nodes ? n_nodes : 1;
}
static uint64_t part_bytes(const struct expert_layer *l, uint32_t part, uint32_t n_nodes)
{
    if (!l->n_experts)
        return 0;
    return n_nodes ? slab_bytes(l, part, n_nodes) : slot_bytes(l);
}
static uint64_t layer_bytes(const struct expert_layer *l, uint32_t n_nodes)
{
    uint64_t b = 0;

    for (uint32_t k = 0; k < n_parts(n_nodes); k++)
        b += part_bytes(l, k, n_nodes);
    return b;
}

/* The largest size below `below`, 0: none. */
static uint64_t next_size(const struct expert_layer *layer, uint32_t n_layers, uint32_t n_nodes,
                          uint64_t below)
{
    uint64_t best = 0;

    for (uint32_t l = 0; l < n_layers; l++) {
        uint64_t b = layer_bytes(&layer[l], n_nodes);
        if (b < below && b > best)
            best = b;
    }
    return best;
}

/* The largest expert of each class, largest first; returns the number of classes. */
static uint32_t tops(const struct expert_layer *layer, uint32_t n_layers, uint32_t n_nodes,
                     uint64_t top[POLICY_SIZES])
{
    uint32_t n = 0;
    uint64_t b = UINT64_MAX;

    while (n < POLICY_SIZES && (b = next_size(layer, n_layers, n_nodes, b)))
        if (!n || b < top[n - 1] - top[n - 1] / WASTE)
            top[n++] = b;
    return n;
}

static void fill(const struct expert_layer *layer, uint32_t n_layers, uint32_t n_nodes,
                 const uint64_t *top, uint8_t *size_of, struct pools *p)
{
    for (uint32_t l = 0; l < n_layers; l++) {
        uint64_t b = layer_bytes(&layer[l], n_nodes);
        uint32_t s = 0;
        if (size_of)
            size_of[l] = 0;
        if (!b)
            continue;
        while (s + 1 < p->n && b > top[p->n - 1 - s])
            s++;
        if (size_of)
            size_of[l] = (uint8_t)s;
        p->experts[s] += layer[l].n_experts;
        for (uint32_t k = 0; k < n_parts(n_nodes); k++)
            if (p->slab[s][k] < part_bytes(&layer[l], k, n_nodes))
                p->slab[s][k] = part_bytes(&layer[l], k, n_nodes);
    }
    for (uint32_t s = 0; s < p->n; s++)
        for (uint32_t k = 0; k < n_parts(n_nodes); k++) {
            if (s &&
                p->slab[s][k] < p->slab[s - 1][k]) /* shares are rounded: one node may lie askew */
                p->slab[s][k] = p->slab[s - 1][k];
            p->bytes[s] += p->slab[s][k];
        }
}

/* The same part of every class, then single places to those that have the least. */
static void share(uint64_t ram, struct pools *p)
{
    uint64_t all = 0, left;

    for (uint32_t s = 0; s < p->n; s++)
        all += p->bytes[s] * p->experts[s];
    if (ram >= all) {
        memcpy(p->places, p->experts, sizeof p->places);
        return;
    }
    p->places[p->n - 1] = 1;
    left = ram - p->bytes[p->n - 1];
    for (uint32_t s = 0; s < p->n; s++) {
        uint32_t n = (uint32_t)((double)left / (double)all * p->experts[s]);
        p->places[s] += n;
    }
    left = ram;
    for (uint32_t s = 0; s < p->n; s++)
        left -= p->places[s] * p->bytes[s];
    for (;;) {
        uint32_t best = p->n;
        for (uint32_t s = p->n; s-- > 0;)
            if (p->places[s] < p->experts[s] && p->bytes[s] <= left &&
                (best == p->n || (uint64_t)p->places[s] * p->experts[best] <
                                     (uint64_t)p->places[best] * p->experts[s]))
                best = s;
        if (best == p->n)
            return;
        p->places[best]++;
        left -= p->bytes[best];
    }
}

int pools_plan(const struct expert_layer *layer, uint32_t n_layers, uint32_t n_nodes, uint64_t ram,
               uint8_t *size_of, struct pools *p, struct err *e)
{
    uint64_t top[POLICY_SIZES];

    *p = (struct pools){0};
    p->n = tops(layer, n_layers, n_nodes, top);
    if (!p->n)
        return err_set(e, -EINVAL, "no layer has experts");
    fill(layer, n_layers, n_nodes, top, size_of, p);
    if (ram < p->bytes[p->n - 1])
        return err_set(e, -ENOSPC,
                       "%llu bytes for experts hold none: one takes %llu; give --ram %llu or more",
                       (unsigned long long)ram, (unsigned long long)p->bytes[p->n - 1],
                       (unsigned long long)p->bytes[p->n - 1]);
    share(ram, p);
    for (uint32_t s = 0; s < p->n; s++)
        for (uint32_t k = 0; k < n_parts(n_nodes); k++)
            p->node_bytes[k] += p->slab[s][k] * p->places[s];
    return 0;
}
