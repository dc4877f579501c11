/* No I/O, no clock: what a budget of bytes becomes. */
#include "coordinator/residency/slabs.h"

/* Spare slabs of a class: two for each expert that a token uses of a layer, so that all of a layer's
 * misses can be read at once, and the next layer's be read ahead, but no more than this part of the class: they hold experts too (the ones
 * that left last), only the policy does not choose which. */
#define SPARE_PART 8

static uint32_t most_used(const struct expert_layer *layer, uint32_t n_layers)
{
    uint32_t k = 1;

    for (uint32_t l = 0; l < n_layers; l++)
        if (layer[l].n_experts && layer[l].top_k > k)
            k = layer[l].top_k;
    return k;
}

/* Out of the places of every class; the largest class has one if there are two slabs at all: with it
 * every call can be finished, whatever it names. */
static void set_aside(uint32_t top_k, struct slab_plan *p)
{
    uint32_t largest = p->pools.n - 1;

    for (uint32_t s = 0; s <= largest; s++) {
        uint32_t n = p->pools.places[s] / SPARE_PART;
        p->spare[s] = n < 2 * top_k ? n : 2 * top_k;
    }
    if (!p->spare[largest] && p->n_slabs > 1)
        p->spare[largest] = 1;
    for (uint32_t s = 0; s <= largest; s++)
        p->pools.places[s] -= p->spare[s];
}

int slab_plan(const struct expert_layer *layer, uint32_t n_layers, uint32_t n_nodes, uint64_t ram,
              struct slab_plan *p, struct err *e)
{
    uint64_t largest[MAX_NODES] = {0};
    int rc;

    *p = (struct slab_plan){0};
    for (uint32_t l = 0; l < n_layers; l++)
        for (uint32_t k = 0; k < n_nodes; k++) {
            uint64_t b = layer[l].n_experts ? slab_bytes(&layer[l], k, n_nodes) : 0;
            p->need_all += b * layer[l].n_experts;
            p->node_bytes[k] += b * layer[l].n_experts;
            if (largest[k] < b)
                largest[k] = b;
        }
    for (uint32_t k = 0; k < n_nodes; k++)
        p->need_one += largest[k];
    if (ram >= p->need_all) {
        p->resident = 1;
        for (uint32_t l = 0; l < n_layers; l++)
            p->n_slabs += layer[l].n_experts;
        return 0;
    }
    if (ram < p->need_one)
        return err_set(e, -ENOSPC,
                       "%llu bytes for experts hold none: one takes %llu (all: %llu); give --ram %llu or more",
                       (unsigned long long)ram, (unsigned long long)p->need_one,
                       (unsigned long long)p->need_all, (unsigned long long)p->need_one);
    rc = pools_plan(layer, n_layers, n_nodes, ram, NULL, &p->pools, e);
    if (rc)
        return rc;
    for (uint32_t s = 0; s < p->pools.n; s++)
        p->n_slabs += p->pools.places[s];
    for (uint32_t k = 0; k < n_nodes; k++)
        p->node_bytes[k] = p->pools.node_bytes[k];
    set_aside(most_used(layer, n_layers), p);
    return 0;
}

static uint32_t slabs_of(const struct slab_plan *p, uint32_t class)
{
    return p->pools.places[class] + p->spare[class];
}

void slab_offsets(const struct slab_plan *p, const struct expert_layer *layer, uint32_t n_layers,
                  uint32_t n_nodes, uint32_t node, uint64_t *off)
{
    uint64_t at = 0;

    if (!p->resident) {
        for (uint32_t s = 0; s < p->pools.n; s++)
            for (uint32_t i = 0; i < slabs_of(p, s); i++, at += p->pools.slab[s][node])
                *off++ = at;
        return;
    }
    for (uint32_t l = 0; l < n_layers; l++)
        for (uint32_t x = 0; x < layer[l].n_experts; x++) {
            *off++ = at;
            at += slab_bytes(&layer[l], node, n_nodes);
        }
}

uint32_t slab_class(const struct slab_plan *p, uint32_t slab)
{
    uint32_t s = 0;

    for (uint32_t end = slabs_of(p, 0); slab >= end && s + 1 < p->pools.n; end += slabs_of(p, s))
        s++;
    return s;
}

uint32_t slab_class_of_layer(const struct slab_plan *p, const struct expert_layer *l, uint32_t n_nodes)
{
    for (uint32_t s = 0; l->n_experts && s + 1 < p->pools.n; s++) {
        uint32_t k = 0;
        while (k < n_nodes && slab_bytes(l, k, n_nodes) <= p->pools.slab[s][k])
            k++;
        if (k == n_nodes)
            return s;
    }
    return l->n_experts ? p->pools.n - 1 : 0;
}
