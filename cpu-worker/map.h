/* What the worker sees of shared memory: pointers into the mapped segments, a checked copy of the
 * sizes, and the layers' experts as this program uses them. Everything here is constant once
 * maps_take has returned, so nothing of it is checked again. */
#pragma once
#include "kernels/quantise/quantise.h"
#include "shm/child.h"

/* One node's rows of one matrix, for every expert of a layer. */
struct cut {
    uint32_t r0, n_rows; /* of the expert's matrix */
    uint64_t off;        /* of the piece in the slab */
    uint64_t at; /* file offset of expert 0's first row here: gives the shift in the piece */
};
struct mat {
    uint32_t type, rows, cols;
    enum act_form act; /* what the type wants the other operand in */
    uint64_t row_bytes, stride;
    struct cut cut[MAX_NODES];
};
struct layer {
    uint32_t n_experts; /* 0: none in this layer */
    uint32_t top_k, n_embd, n_ff;
    float limit;
    int has_scale;
    struct mat m[N_MATS];
    uint64_t slab_bytes[MAX_NODES];
    uint64_t slot_off[N_MATS], slot_bytes; /* on a card */
};

struct maps {
    struct geometry g; /* a copy */
    uint32_t self;     /* own outbox number */
    struct board *board;
    struct calls *calls;
    struct amends *amends;
    struct tables *tables;
    struct bell *bells;
    const uint8_t *acts;
    uint64_t acts_bytes;
    struct outbox *out;            /* own, the only one written */
    struct outbox *box[MAX_PROCS]; /* by outbox number, own included; NULL: not mapped */
    uint16_t other[MAX_PROCS];     /* the other segments of outboxes, by outbox_home */
    uint32_t n_other;
    const uint8_t *slabs[MAX_NODES];
    uint64_t slabs_bytes[MAX_NODES];
    struct layer *layer; /* n_layers; owns */
    /* A card's worker: its experts lie in its own pool, in slots [slot0, slot0 + n_slots) of the tables,
     * and the slabs are none of its places. NULL: a node's worker, whose places are the slabs. */
    const uint8_t *pool;
    uint32_t slot0, n_slots;
    struct timeline timeline;
};

/* A counter of the own outbox: one writer, any reader. */
static inline void counter_add(_Atomic uint64_t *c, uint64_t n)
{
    atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

/* Borrows the segments of c until the process ends. Checks that they hold what the board's geometry
 * says, and that every layer's experts can be computed. Free with maps_drop, also after an error.
 */
int maps_take(struct maps *m, const struct child *c, struct err *e);
void maps_drop(struct maps *m);

/* May this worker be given an item in that place? */
static inline int maps_has_place(const struct maps *m, uint32_t place)
{
    if (m->pool)
        return place >= m->g.n_slabs + m->slot0 && place - m->g.n_slabs - m->slot0 < m->n_slots;
    return place < m->g.n_slabs;
}

/* The rows of `mat` that node has of an expert lying in `place`. NULL: the table points
 * outside the slabs. The pointer is to the node's first row (row cut.r0 of the matrix). */
const uint8_t *maps_rows(const struct maps *m, const struct layer *l, uint32_t node, uint32_t place,
                         uint32_t expert, int mat);
