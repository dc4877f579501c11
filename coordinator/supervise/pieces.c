#include "coordinator/supervise/pieces.h"

#include "shm/size.h"

void pieces_expert(const struct pieces *p, uint32_t layer, uint32_t expert, uint32_t place,
                   struct order *o)
{
    const struct expert_layer *l = table_layer(p->tables, layer);

    o->kind = ORDER_READ;
    o->layer = layer;
    o->expert = expert;
    o->n_pieces = 0;
    for (uint32_t k = 0; k < p->geo->n_nodes; k++)
        for (int m = 0; m < N_MATS; m++) {
            struct slab_piece s = slab_piece(l, expert, k, p->geo->n_nodes, m);
            if (!s.bytes)
                continue;
            o->piece[o->n_pieces++] = (struct order_piece){
                .shard = l->m[m].shard,
                .seg = 1 + k,
                .file_off = s.file_off,
                .bytes = round_up(s.shift + s.bytes, 4096),
                .need = s.shift + s.bytes,
                .dst = *table_slab_off(p->tables, p->geo, k, place) + s.off,
            };
        }
}

void pieces_trunk(const struct pieces *p, uint32_t tensor, uint64_t dst, struct order *o)
{
    const struct model_tensor *t = &p->m->tensor[tensor];

    o->kind = ORDER_READ;
    o->layer = UINT32_MAX;
    o->expert = tensor;
    o->n_pieces = 1;
    o->piece[0] = (struct order_piece){
        .shard = t->shard,
        .seg = 0,
        .file_off = t->file_offset & ~4095ull,
        .bytes = trunk_room(t),
        .need = trunk_shift(t) + t->bytes,
        .dst = dst,
    };
}
