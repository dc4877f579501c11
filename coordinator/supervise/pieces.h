/* Which bytes of which file a read order asks for: a function of where the model's experts lie and of
 * the nodes that hold them. Used by loading and by paging.
 *
 * A GGUF file: three pieces a node, whole blocks that cover the rows. A pack for this run's number of
 * nodes: one piece a node, with its checksum. A pack for another number: a node's rows are joined from
 * (or cut out of) the blocks that have some of them, in up to ORDER_PIECES pieces, without checksums. */
#pragma once
#include "coordinator/model/model.h"
#include "shm/layout.h"

struct pieces { /* borrowed by who holds it */
    const struct model *m;
    const struct geometry *geo;
    struct tables *tables;
    /* the number that the pager knows the first of a pack's originals by; MODEL_NONE: there are none */
    uint32_t original;
};

/* An expert's pieces on every node into slab `place`. Number and priority are the caller's. With
 * originals at hand the order is ORDER_SOFT: if it fails, the next function has another source. */
void pieces_expert(const struct pieces *p, uint32_t layer, uint32_t expert, uint32_t place,
                   struct order *o);
/* The same bytes from the pack's originals. 0: they are not there, or the model is no pack. */
int pieces_expert_again(const struct pieces *p, uint32_t layer, uint32_t expert, uint32_t place,
                        struct order *o);
/* The original that has the expert's first matrix, or the tensor (layer UINT32_MAX), for a line; where
 * `again` has said 1. */
const char *pieces_original_path(const struct pieces *p, uint32_t layer, uint32_t expert);
/* A trunk tensor, whose first block goes to `dst` of the trunk's segment; and again, as above. */
void pieces_trunk(const struct pieces *p, uint32_t tensor, uint64_t dst, struct order *o);
int pieces_trunk_again(const struct pieces *p, uint32_t tensor, uint64_t dst, struct order *o);

/* Where a trunk tensor's bytes begin behind the offset of its first block; bytes of its blocks. */
static inline uint64_t trunk_shift(const struct model_tensor *t)
{
    return t->file_offset & 4095;
}
static inline uint64_t trunk_room(const struct model_tensor *t)
{
    return (trunk_shift(t) + t->bytes + 4095) & ~4095ull;
}
