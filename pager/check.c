/* One function from plain values to a verdict. */
#include "pager/check.h"

#include <inttypes.h>

#include "pager/jobs.h"
#include "shm/size.h"

static int bad(const struct order *o, uint32_t piece, const char *what, uint64_t found,
               uint64_t limit, struct err *e)
{
    return err_set(e, -EPROTO, "order %" PRIu64 ", piece %u: %s is %" PRIu64 " (limit %" PRIu64 ")",
                   o->number, piece, what, found, limit);
}

/* Any bytes: the blocks around them are read into memory of our own. */
static int check_copied(const struct order *o, uint32_t i, const struct check_bounds *b,
                        struct err *e)
{
    const struct order_piece *p = &o->piece[i];
    uint64_t end;

    if (!p->need || p->need != p->bytes)
        return bad(o, i, "the wanted length", p->need, p->bytes, e);
    if (u64_add(p->dst, p->need, &end) || end > b->seg_bytes[p->seg])
        return bad(o, i, "the place", p->dst, b->seg_bytes[p->seg], e);
    if (u64_add(p->file_off, p->need, &end) || end > b->shard_bytes[p->shard])
        return bad(o, i, "the file offset", p->file_off, b->shard_bytes[p->shard], e);
    return 0;
}

static int check_blocks(const struct order *o, uint32_t i, const struct check_bounds *b,
                        struct err *e)
{
    const struct order_piece *p = &o->piece[i];
    uint64_t end;

    if (p->file_off % READ_ALIGN)
        return bad(o, i, "the file offset, not a whole block,", p->file_off, READ_ALIGN, e);
    if (p->dst % READ_ALIGN)
        return bad(o, i, "the place, not a whole block,", p->dst, READ_ALIGN, e);
    if (!p->bytes || p->bytes % READ_ALIGN)
        return bad(o, i, "the length, not whole blocks,", p->bytes, READ_ALIGN, e);
    if (!p->need || p->need > p->bytes)
        return bad(o, i, "the wanted length", p->need, p->bytes, e);
    if (u64_add(p->dst, p->bytes, &end) || end > b->seg_bytes[p->seg])
        return bad(o, i, "the place", p->dst, b->seg_bytes[p->seg], e);
    if (u64_add(p->file_off, p->bytes, &end) || p->file_off + p->need > b->shard_bytes[p->shard])
        return bad(o, i, "the file offset", p->file_off, b->shard_bytes[p->shard], e);
    return 0;
}

static int check_piece(const struct order *o, uint32_t i, const struct check_bounds *b,
                       struct err *e)
{
    const struct order_piece *p = &o->piece[i];

    if (p->shard >= b->n_shards)
        return bad(o, i, "the file's number", p->shard, b->n_shards, e);
    if (p->seg >= b->n_segs || !b->seg_bytes[p->seg])
        return bad(o, i, "the segment's number", p->seg, b->n_segs, e);
    if (p->flags & ~(uint32_t)(PIECE_CHECK | PIECE_COPY))
        return bad(o, i, "the word of flags", p->flags, PIECE_CHECK | PIECE_COPY, e);
    return p->flags & PIECE_COPY ? check_copied(o, i, b, e) : check_blocks(o, i, b, e);
}

/* ORDER_CANCEL, ORDER_RAISE */
static int check_change(const struct order *o, struct err *e)
{
    if (!o->target || o->target >= o->number)
        return err_set(e, -EPROTO, "order %" PRIu64 ": it is about order %" PRIu64, o->number,
                       o->target);
    if (o->n_pieces || o->flags)
        return err_set(e, -EPROTO, "order %" PRIu64 ": %u pieces, flags %u, and it reads nothing",
                       o->number, o->n_pieces, o->flags);
    return 0;
}

int check_order(const struct order *o, uint64_t number, const struct check_bounds *b, struct err *e)
{
    int rc = 0;

    if (o->number != number)
        return err_set(e, -EPROTO, "order %" PRIu64 " says that it is %" PRIu64, number, o->number);
    if (o->prio > PRIO_WARM)
        return err_set(e, -EPROTO, "order %" PRIu64 ": priority %u is not known", number, o->prio);
    if (o->kind == ORDER_CANCEL || o->kind == ORDER_RAISE)
        return check_change(o, e);
    if (o->kind != ORDER_READ)
        return err_set(e, -EPROTO, "order %" PRIu64 ": kind %u is not known", number, o->kind);
    if (o->flags & ~(uint32_t)ORDER_SOFT)
        return err_set(e, -EPROTO, "order %" PRIu64 ": flags %u are not known", number, o->flags);
    if (!o->n_pieces || o->n_pieces > ORDER_PIECES)
        return err_set(e, -EPROTO, "order %" PRIu64 ": %u pieces (1 to %u)", number, o->n_pieces,
                       ORDER_PIECES);
    for (uint32_t i = 0; i < o->n_pieces && !rc; i++)
        rc = check_piece(o, i, b, e);
    return rc;
}
