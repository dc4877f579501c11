/* Which bytes of which file a read order asks for: a function of where the model's experts lie and of
 * the nodes that hold them. Used by loading and by paging. */
#pragma once
#include "coordinator/model/model.h"
#include "shm/layout.h"

struct pieces { /* borrowed by who holds it */
    const struct model *m;
    const struct geometry *geo;
    struct tables *tables;
};

/* An expert's pieces on every node into slab `place`. Number and priority are the caller's. */
void pieces_expert(const struct pieces *p, uint32_t layer, uint32_t expert, uint32_t place,
                   struct order *o);
/* A trunk tensor, whose first block goes to `dst` of the trunk's segment. */
void pieces_trunk(const struct pieces *p, uint32_t tensor, uint64_t dst, struct order *o);

/* Where a trunk tensor's bytes begin behind the offset of its first block; bytes of its blocks. */
static inline uint64_t trunk_shift(const struct model_tensor *t)
{
    return t->file_offset & 4095;
}
static inline uint64_t trunk_room(const struct model_tensor *t)
{
    return (trunk_shift(t) + t->bytes + 4095) & ~4095ull;
}
