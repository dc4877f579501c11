#include "coordinator/supervise/pieces.h"

#include <assert.h>

#include "coordinator/pack/pack.h"
#include "shm/size.h"

static void begin(struct order *o, uint32_t layer, uint32_t expert)
{
    o->kind = ORDER_READ;
    o->layer = layer;
    o->expert = expert;
    o->n_pieces = 0;
    o->flags = 0;
}

static struct order_piece *next(struct order *o)
{
    assert(o->n_pieces < ORDER_PIECES);
    return &o->piece[o->n_pieces++];
}

/* Any bytes to any place, by way of the pager's own blocks. */
static void add_copy(struct order *o, uint32_t shard, uint32_t seg, uint64_t from, uint64_t bytes,
                     uint64_t dst)
{
    if (bytes)
        *next(o) = (struct order_piece){.shard = shard,
                                        .seg = seg,
                                        .file_off = from,
                                        .bytes = bytes,
                                        .need = bytes,
                                        .dst = dst,
                                        .flags = PIECE_COPY};
}

/* ---- experts ---- */

static uint64_t slab_at(const struct pieces *p, uint32_t node, uint32_t place)
{
    return *table_slab_off(p->tables, p->geo, node, place);
}

static void plain(const struct pieces *p, const struct expert_layer *l, uint32_t expert, uint32_t place,
                  uint32_t node, struct order *o)
{
    for (int m = 0; m < N_MATS; m++) {
        struct slab_piece s = slab_piece(l, expert, node, p->geo->n_nodes, m);
        if (!s.bytes)
            continue;
        *next(o) = (struct order_piece){.shard = l->m[m].shard,
                                        .seg = 1 + node,
                                        .file_off = s.file_off,
                                        .bytes = round_up(s.shift + s.bytes, 4096),
                                        .need = s.shift + s.bytes,
                                        .dst = slab_at(p, node, place) + s.off};
    }
}

/* The pack has this very node's rows in one block. */
static void block(const struct pieces *p, uint32_t shard, const struct pack_block *b, uint32_t place,
                  uint32_t node, struct order *o)
{
    if (b->bytes)
        *next(o) = (struct order_piece){.shard = shard,
                                        .seg = 1 + node,
                                        .file_off = b->off,
                                        .bytes = pack_pages(b->bytes),
                                        .need = b->bytes,
                                        .dst = slab_at(p, node, place),
                                        .xxh = b->xxh,
                                        .flags = PIECE_CHECK};
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}
static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* The pack was cut for another number of nodes: rows from every block that has some of this node's. */
static void joined(const struct pieces *p, const struct expert_layer *l, uint32_t expert, uint32_t place,
                   uint32_t node, struct order *o)
{
    const struct pack *pk = gguf_pack(p->m->g);
    uint32_t n = p->geo->n_nodes, cut = pk->head.n_nodes, layer = o->layer;

    for (int i = 0; i < N_MATS; i++) {
        const struct expert_matrix *m = &l->m[i];
        uint32_t r0 = share_row(m->rows, node, n), r1 = share_row(m->rows, node + 1, n);
        uint64_t dst = slab_at(p, node, place) + packed_off(l, node, n, i);

        for (uint32_t k = 0; k < cut; k++) {
            uint32_t b0 = share_row(m->rows, k, cut), b1 = share_row(m->rows, k + 1, cut);
            uint32_t from = larger(r0, b0), to = smaller(r1, b1);

            if (from < to)
                add_copy(o, m->shard, 1 + node,
                         pack_block(pk, layer, expert, k)->off + packed_off(l, k, cut, i) +
                             (from - b0) * m->row_bytes,
                         (to - from) * m->row_bytes, dst + (from - r0) * m->row_bytes);
        }
    }
}

void pieces_expert(const struct pieces *p, uint32_t layer, uint32_t expert, uint32_t place,
                   struct order *o)
{
    const struct expert_layer *l = table_layer(p->tables, layer);
    const struct pack *pk = gguf_pack(p->m->g);

    begin(o, layer, expert);
    for (uint32_t k = 0; k < p->geo->n_nodes; k++)
        if (!pk)
            plain(p, l, expert, place, k, o);
        else if (pk->head.n_nodes == p->geo->n_nodes)
            block(p, l->m[MAT_GATE].shard, pack_block(pk, layer, expert, k), place, k, o);
        else
            joined(p, l, expert, place, k, o);
    if (p->original != MODEL_NONE)
        o->flags |= ORDER_SOFT;
}

int pieces_expert_again(const struct pieces *p, uint32_t layer, uint32_t expert, uint32_t place,
                        struct order *o)
{
    const struct expert_layer *l = table_layer(p->tables, layer);
    const struct pack *pk = gguf_pack(p->m->g);
    uint32_t n = p->geo->n_nodes;

    if (!pk || p->original == MODEL_NONE)
        return 0;
    begin(o, layer, expert);
    for (uint32_t k = 0; k < n; k++)
        for (int m = 0; m < N_MATS; m++) {
            uint32_t file;
            uint64_t at = pack_original_at(pk, layer, expert, m, &file);

            add_copy(o, p->original + file, 1 + k,
                     at + share_row(l->m[m].rows, k, n) * l->m[m].row_bytes, share_bytes(&l->m[m], k, n),
                     slab_at(p, k, place) + packed_off(l, k, n, m));
        }
    return 1;
}

/* ---- the trunk ---- */

void pieces_trunk(const struct pieces *p, uint32_t tensor, uint64_t dst, struct order *o)
{
    const struct model_tensor *t = &p->m->tensor[tensor];
    const struct pack *pk = gguf_pack(p->m->g);
    struct order_piece *x;

    begin(o, UINT32_MAX, tensor);
    x = next(o);
    *x = (struct order_piece){.shard = t->shard,
                              .seg = 0,
                              .file_off = t->file_offset & ~4095ull,
                              .bytes = trunk_room(t),
                              .need = trunk_shift(t) + t->bytes,
                              .dst = dst};
    if (pk) { /* begins on a page there: gguf_open has looked */
        x->flags = PIECE_CHECK;
        x->xxh = pack_tensor(pk, t->name)->xxh;
    }
    if (p->original != MODEL_NONE)
        o->flags |= ORDER_SOFT;
}

int pieces_trunk_again(const struct pieces *p, uint32_t tensor, uint64_t dst, struct order *o)
{
    const struct model_tensor *t = &p->m->tensor[tensor];
    const struct pack *pk = gguf_pack(p->m->g);
    const struct pack_tensor *x;

    if (!pk || p->original == MODEL_NONE)
        return 0;
    x = pack_tensor(pk, t->name);
    begin(o, UINT32_MAX, tensor);
    add_copy(o, p->original + x->original, 0, x->original_off, t->bytes, dst);
    return 1;
}

const char *pieces_original_path(const struct pieces *p, uint32_t layer, uint32_t expert)
{
    const struct pack *pk = gguf_pack(p->m->g);
    uint32_t file;

    if (layer == UINT32_MAX)
        file = pack_tensor(pk, p->m->tensor[expert].name)->original;
    else
        pack_original_at(pk, layer, expert, MAT_GATE, &file);
    return pack_original_path(pk, file);
}
