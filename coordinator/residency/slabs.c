/* No I/O, no clock: what a budget of bytes becomes. */
#include "coordinator/residency/slabs.h"

int slab_plan(const struct expert_layer *layer, uint32_t n_layers, uint32_t n_nodes, uint64_t ram,
              struct slab_plan *p, struct err *e)
{
    *p = (struct slab_plan){0};
    for (uint32_t l = 0; l < n_layers; l++)
        for (uint32_t k = 0; k < n_nodes; k++) {
            uint64_t b = layer[l].n_experts ? slab_bytes(&layer[l], k, n_nodes) : 0;
            p->need_all += b * layer[l].n_experts;
            p->node_bytes[k] += b * layer[l].n_experts;
            if (p->slab[k] < b)
                p->slab[k] = b;
        }
    for (uint32_t k = 0; k < n_nodes; k++)
        p->need_one += p->slab[k];
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
    p->n_slabs = (uint32_t)(ram / p->need_one);
    for (uint32_t k = 0; k < n_nodes; k++)
        p->node_bytes[k] = p->slab[k] * p->n_slabs;
    return 0;
}

void slab_offsets(const struct slab_plan *p, const struct expert_layer *layer, uint32_t n_layers,
                  uint32_t n_nodes, uint32_t node, uint64_t *off)
{
    uint64_t at = 0;

    if (!p->resident) {
        for (uint32_t s = 0; s < p->n_slabs; s++)
            off[s] = s * p->slab[node];
        return;
    }
    for (uint32_t l = 0; l < n_layers; l++)
        for (uint32_t x = 0; x < layer[l].n_experts; x++) {
            *off++ = at;
            at += slab_bytes(&layer[l], node, n_nodes);
        }
}
