/* Checks once what the coordinator laid out, so that the work needs no checks: sizes of segments
 * against the geometry, the table's offsets, every layer's shapes and types. Computes nothing. */
#include "cpu-worker/map.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/type/type.h"
#include "shm/size.h"

static const char mat_name[N_MATS][5] = {"gate", "up", "down"};

/* The segment's payload, refused if it is missing or smaller than need. */
static void *take(const struct child *c, enum seg_role role, uint32_t index, uint64_t need,
                  struct err *e)
{
    for (size_t i = 0; i < c->n_segs; i++) {
        const struct seg *s = &c->seg[i];
        if (s->role != role || s->index != index)
            continue;
        if (s->bytes >= need)
            return s->base;
        err_set(e, -EPROTO, "segment %s.%u holds %llu bytes, wanted %llu", seg_role_name(role),
                index, (unsigned long long)s->bytes, (unsigned long long)need);
        return NULL;
    }
    err_set(e, -EPROTO, "segment %s.%u was not passed on", seg_role_name(role), index);
    return NULL;
}

/* bytes of an array of f32 with three factors; UINT64_MAX if that is too much to count */
static uint64_t f32_bytes(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t n;

    return u64_mul(a, b, &n) || u64_mul(n, c, &n) || u64_mul(n, sizeof(float), &n) ? UINT64_MAX : n;
}

static int check_geometry(const struct geometry *g, struct err *e)
{
    uint64_t most = 1u << 30; /* of every number; keeps the sums below from wrapping */

    if (g->n_nodes < 1 || g->n_nodes > MAX_NODES || !g->n_layers || !g->max_tokens ||
        !g->max_items || !g->max_pairs || !g->top_k || !g->n_embd || !g->n_ff || !g->n_experts ||
        !g->n_slabs || g->n_layers > most || g->max_items > most || g->max_pairs > most ||
        g->n_experts > most || g->n_slabs > most || g->n_slots > most || g->amend_slots > most || !g->amend_slots ||
        (g->amend_slots & (g->amend_slots - 1)))
        return err_set(e, -EPROTO,
                       "the board's geometry makes no sense (%u nodes, %u layers, %u items)",
                       g->n_nodes, g->n_layers, g->max_items);
    if (g->max_tokens > 65536 || g->top_k > 65536 || g->acts_half % 4 || g->inter_half % 4 ||
        g->rows_half % 4 || g->acts_half > UINT64_MAX / 8 || g->inter_half > UINT64_MAX / 8 ||
        g->rows_half > UINT64_MAX / 8 || f32_bytes(g->max_tokens, 1, g->n_embd) > g->acts_half ||
        f32_bytes(g->max_tokens, g->top_k, g->n_ff) > g->inter_half ||
        f32_bytes(g->max_tokens, g->top_k, g->n_embd) > g->rows_half)
        return err_set(e, -EPROTO,
                       "the arenas do not hold a call of %u tokens with %u experts each",
                       g->max_tokens, g->top_k);
    return 0;
}

static int take_segments(struct maps *m, const struct child *c, struct err *e)
{
    const struct board *b = take(c, SEG_BOARD, 0, sizeof(struct board), e);
    const struct geometry *g = &m->g;
    struct outbox *box;
    int rc;

    if (!b)
        return e->code;
    m->g = b->geo;
    rc = check_geometry(g, e);
    if (rc)
        return rc;
    m->board = (struct board *)b;
    m->acts_bytes = CALLS_IN_FLIGHT * g->acts_half;
    if (!(m->calls = take(c, SEG_CALLS, 0, calls_bytes(g), e)) ||
        !(m->acts = take(c, SEG_ACTS, 0, m->acts_bytes, e)) ||
        !(m->amends = take(c, SEG_AMENDS, 0, amends_bytes(g), e)) ||
        !(m->bells = take(c, SEG_BELLS, 0, MAX_PROCS * sizeof(struct bell), e)) ||
        !(m->tables = take(c, SEG_TABLES, 0, sizeof(struct tables), e)) ||
        !(m->out = take(c, SEG_OUTBOX, outbox_home(c->outbox), outbox_bytes(g), e)))
        return e->code;
    for (uint32_t k = 0; k < g->n_nodes; k++)
        if (!(m->slabs[k] = take(c, SEG_SLABS, k, 0, e)))
            return e->code;
    for (size_t i = 0; i < c->n_segs; i++) {
        const struct seg *s = &c->seg[i];
        if (s->role == SEG_SLABS && s->index < g->n_nodes)
            m->slabs_bytes[s->index] = s->bytes;
        if (s->role != SEG_OUTBOX || s->index >= MAX_PROCS)
            continue;
        if (!(box = take(c, SEG_OUTBOX, s->index, outbox_bytes(g), e)))
            return e->code;
        outbox_put(m->box, s->index, box);
        if (s->index != outbox_home(c->outbox))
            m->other[m->n_other++] = (uint16_t)s->index;
    }
    return 0;
}

/* Do the tables' arrays lie in their segment? */
static int check_tables(const struct maps *m, const struct child *c, struct err *e)
{
    const struct geometry *g = &m->g;
    const struct tables t = *m->tables;
    uint64_t experts = (uint64_t)g->n_layers * g->n_experts,
             slabs = (uint64_t)g->n_nodes * g->n_slabs;
    const struct {
        const char *name;
        uint64_t off, n, each;
    } part[] = {{"entries", t.off_entry, experts, 8},
                {"headers", t.off_header, slabs, 8},
                {"slab offsets", t.off_slab, slabs, 8},
                {"layers", t.off_layer, g->n_layers, sizeof(struct expert_layer)},
                {"scales", t.off_scale, experts, N_MATS * sizeof(float)},
                {"slots", t.off_slot, g->n_slots, sizeof(struct card_slot)},
                {"cards", t.off_card, g->n_slots ? MAX_CARDS : 0, sizeof(uint32_t)}};
    uint64_t bytes = 0, end;

    for (size_t i = 0; i < c->n_segs; i++)
        if (c->seg[i].role == SEG_TABLES)
            bytes = c->seg[i].bytes;
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        if (part[i].off % 8 || u64_mul(part[i].n, part[i].each, &end) ||
            u64_add(end, part[i].off, &end) || end > bytes)
            return err_set(e, -EPROTO, "segment tables holds %llu bytes, its %s do not lie in it",
                           (unsigned long long)bytes, part[i].name);
    return 0;
}

static int take_mat(struct mat *m, const struct expert_layer *l, int which, uint32_t layer,
                    const struct geometry *g, struct err *e)
{
    const struct expert_matrix *x = &l->m[which];
    const struct type_info *t = type_info(x->type);
    uint64_t bytes;

    if (!t || !t->built)
        return err_set(e, -EPROTO,
                       "layer %u: %s matrices are of type %s (%u), which has no kernels", layer,
                       mat_name[which], t ? t->name : "unknown", x->type);
    if (type_row_bytes(x->type, x->cols, &bytes) || x->row_bytes != bytes)
        return err_set(e, -EPROTO, "layer %u: a row of %s, %u %s values, cannot have %llu bytes",
                       layer, mat_name[which], x->cols, t->name, (unsigned long long)x->row_bytes);
    *m = (struct mat){.type = x->type,
                      .rows = x->rows,
                      .cols = x->cols,
                      .act = t->act,
                      .row_bytes = x->row_bytes,
                      .stride = l->packed ? 0 : x->stride};
    for (uint32_t k = 0; k < g->n_nodes; k++) {
        struct cut *cut = &m->cut[k];
        cut->r0 = share_row(x->rows, k, g->n_nodes);
        cut->n_rows = share_row(x->rows, k + 1, g->n_nodes) - cut->r0;
        cut->off = slab_piece(l, 0, k, g->n_nodes, which).off;
        cut->at = l->packed ? 0 : x->file_off + cut->r0 * x->row_bytes;
    }
    return 0;
}

static int take_layer(struct layer *l, const struct expert_layer *x, uint32_t layer,
                      const struct geometry *g, struct err *e)
{
    const struct expert_matrix *gate = &x->m[MAT_GATE], *up = &x->m[MAT_UP],
                               *down = &x->m[MAT_DOWN];
    uint32_t quantum;

    memset(l, 0, sizeof *l);
    if (!x->n_experts)
        return 0;
    if (x->n_experts > g->n_experts || x->top_k > g->top_k || gate->cols > g->n_embd ||
        gate->rows > g->n_ff || gate->cols != up->cols || gate->rows != up->rows ||
        down->cols != gate->rows || down->rows != gate->cols)
        return err_set(
            e, -EPROTO,
            "layer %u: the experts' shapes do not fit (gate %ux%u, up %ux%u, down %ux%u)", layer,
            gate->rows, gate->cols, up->rows, up->cols, down->rows, down->cols);
    for (int i = 0; i < N_MATS; i++) {
        int rc = take_mat(&l->m[i], x, i, layer, g, e);
        if (rc)
            return rc;
        /* the operand of a product is quantised in whole units (rule 9) */
        quantum = l->m[i].act == ACT_A256 ? 256 : l->m[i].act == ACT_A32 ? 32 : 1;
        if (l->m[i].cols % quantum)
            return err_set(e, -EPROTO, "layer %u: %u columns of %s are no multiple of %u", layer,
                           l->m[i].cols, mat_name[i], quantum);
    }
    l->n_experts = x->n_experts;
    l->top_k = x->top_k;
    l->n_embd = gate->cols;
    l->n_ff = gate->rows;
    l->limit = x->limit;
    l->has_scale = x->has_scale != 0;
    for (uint32_t k = 0; k < g->n_nodes; k++)
        l->slab_bytes[k] = slab_bytes(x, k, g->n_nodes);
    for (int i = 0; i < N_MATS; i++)
        l->slot_off[i] = slot_mat_off(x, i);
    l->slot_bytes = slot_bytes(x);
    return 0;
}

int maps_take(struct maps *m, const struct child *c, struct err *e)
{
    int rc;

    memset(m, 0, sizeof *m);
    m->self = c->outbox;
    m->timeline = c->timeline;
    rc = take_segments(m, c, e);
    if (!rc)
        rc = check_tables(m, c, e);
    if (rc)
        return rc;
    m->layer = calloc(m->g.n_layers, sizeof *m->layer);
    if (!m->layer)
        return err_set(e, -ENOMEM, "no memory for %u layers", m->g.n_layers);
    for (uint32_t i = 0; i < m->g.n_layers && !rc; i++) {
        struct expert_layer x = *table_layer(m->tables, i);
        rc = take_layer(&m->layer[i], &x, i, &m->g, e);
    }
    return rc;
}

void maps_drop(struct maps *m)
{
    free(m->layer);
    m->layer = NULL;
}

const uint8_t *maps_rows(const struct maps *m, const struct layer *l, uint32_t node, uint32_t place,
                         uint32_t expert, int mat)
{
    const struct cut *cut = &l->m[mat].cut[node];
    uint64_t off;

    if (m->pool) { /* checked when the pool was taken */
        const struct card_slot *s = table_slot(m->tables, place - m->g.n_slabs);
        return l->slot_bytes > s->bytes ? NULL
                                        : m->pool + s->off + l->slot_off[mat] + cut->r0 * l->m[mat].row_bytes;
    }
    off = *table_slab_off(m->tables, &m->g, node, place);
    if (off > m->slabs_bytes[node] || l->slab_bytes[node] > m->slabs_bytes[node] - off)
        return NULL;
    return m->slabs[node] + off + cut->off + ((cut->at + expert * l->m[mat].stride) & 4095);
}
