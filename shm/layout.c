/* The hash that tells two programs whether they see the same structures. Built from what the
 * compiler made of shm/layout.h: a field that moved changes it without anybody thinking of it. */
#include "shm/layout.h"

#include "shm/amends.h"
#include "shm/seg.h"

static uint64_t mix(uint64_t h, uint64_t x) /* FNV-1a over the eight bytes of x */
{
    for (int i = 0; i < 8; i++) {
        h ^= x & 255;
        h *= 0x100000001b3ull;
        x >>= 8;
    }
    return h;
}

uint64_t shm_layout_hash(void)
{
#define AT(type, field) offsetof(struct type, field)
    static const uint64_t what[] = {
        /* constants */
        CALL_SLOTS,
        CALLS_IN_FLIGHT,
        MAX_NODES,
        MAX_PROCS,
        PROC_FIRST_WORKER,
        OWNER_DISK,
        PLACE_NONE,
        ENTRY_EPOCH_BITS,
        ORDER_PIECES,
        N_MATS,
        SEG_HEAD_BYTES,
        PUBLISHED(3),
        RETIRED(3),
        REDIRECT(5, 3, 2),
        STAMP(5, 3, STAMP_DECLINED),
        ENTRY(3, 5),
        /* the head of a segment */
        sizeof(struct seg_head),
        AT(seg_head, magic),
        AT(seg_head, layout),
        AT(seg_head, build),
        AT(seg_head, role),
        AT(seg_head, index),
        AT(seg_head, bytes),
        /* geometry and board */
        sizeof(struct geometry),
        AT(geometry, n_nodes),
        AT(geometry, n_layers),
        AT(geometry, n_experts),
        AT(geometry, top_k),
        AT(geometry, n_embd),
        AT(geometry, n_ff),
        AT(geometry, max_tokens),
        AT(geometry, max_items),
        AT(geometry, max_pairs),
        AT(geometry, amend_slots),
        AT(geometry, order_slots),
        AT(geometry, n_slabs),
        AT(geometry, acts_half),
        AT(geometry, inter_half),
        AT(geometry, rows_half),
        sizeof(struct board_proc),
        AT(board_proc, pid),
        AT(board_proc, role),
        AT(board_proc, node),
        AT(board_proc, alive),
        sizeof(struct board),
        AT(board, geo),
        AT(board, watch),
        AT(board, asleep_trunk),
        AT(board, asleep_steward),
        AT(board, calls_rung),
        AT(board, steward_rung),
        AT(board, amends_rung),
        AT(board, proc),
        sizeof(struct bell),
        /* calls */
        sizeof(struct call_item),
        AT(call_item, expert),
        AT(call_item, place),
        AT(call_item, epoch),
        AT(call_item, pair0),
        AT(call_item, n_pairs),
        AT(call_item, owner),
        sizeof(struct call_pair),
        AT(call_pair, token),
        AT(call_pair, rank),
        sizeof(struct call_head),
        AT(call_head, seq),
        AT(call_head, layer),
        AT(call_head, n_tokens),
        AT(call_head, n_items),
        AT(call_head, n_pairs),
        AT(call_head, top_k),
        AT(call_head, acts),
        sizeof(struct calls),
        AT(calls, head),
        AT(calls, slot),
        /* amendments */
        sizeof(struct amendment),
        AT(amendment, seq),
        AT(amendment, call),
        AT(amendment, item),
        AT(amendment, share),
        AT(amendment, outbox),
        AT(amendment, place),
        AT(amendment, epoch),
        sizeof(struct amend_slot),
        AT(amend_slot, word),
        AT(amend_slot, am),
        sizeof(struct amends),
        AT(amends, head),
        AT(amends, data),
        /* outbox */
        sizeof(struct outbox_counters),
        AT(outbox_counters, items),
        AT(outbox_counters, declined),
        AT(outbox_counters, dropped),
        sizeof(struct outbox),
        AT(outbox, heartbeat),
        AT(outbox, cursor),
        AT(outbox, amend_cursor),
        AT(outbox, ringing),
        AT(outbox, asleep),
        AT(outbox, owner),
        AT(outbox, count),
        AT(outbox, data),
        /* tables */
        sizeof(struct expert_matrix),
        AT(expert_matrix, type),
        AT(expert_matrix, rows),
        AT(expert_matrix, cols),
        AT(expert_matrix, shard),
        AT(expert_matrix, row_bytes),
        AT(expert_matrix, file_off),
        AT(expert_matrix, stride),
        sizeof(struct expert_layer),
        AT(expert_layer, m),
        AT(expert_layer, n_experts),
        AT(expert_layer, top_k),
        AT(expert_layer, limit),
        AT(expert_layer, has_scale),
        AT(expert_layer, packed),
        PACKED_ALIGN,
        sizeof(struct tables),
        AT(tables, off_entry),
        AT(tables, off_header),
        AT(tables, off_slab),
        AT(tables, off_layer),
        AT(tables, off_scale),
        /* orders and the pager's outbox */
        sizeof(struct order_piece),
        AT(order_piece, shard),
        AT(order_piece, seg),
        AT(order_piece, file_off),
        AT(order_piece, bytes),
        AT(order_piece, need),
        AT(order_piece, dst),
        sizeof(struct order),
        AT(order, number),
        AT(order, kind),
        AT(order, prio),
        AT(order, layer),
        AT(order, expert),
        AT(order, n_pieces),
        AT(order, piece),
        sizeof(struct order_slot),
        AT(order_slot, order),
        sizeof(struct orders),
        AT(orders, head),
        AT(orders, rung),
        AT(orders, slot),
        sizeof(struct pager_counters),
        sizeof(struct pager_box),
        AT(pager_box, heartbeat),
        AT(pager_box, asleep),
        AT(pager_box, count),
        AT(pager_box, done),
    };
#undef AT
    uint64_t h = 0xcbf29ce484222325ull;

    for (size_t i = 0; i < sizeof what / sizeof *what; i++)
        h = mix(h, what[i]);
    return h;
}
