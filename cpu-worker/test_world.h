/* For the tests of this folder: the segments of a small run in memory that forked children share, a
 * model of random weights, and the plain answer to a call. The test plays trunk and steward. */
#pragma once
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cpu-worker/map.h"
#include "kernels/dot/dot.h"
#include "kernels/func/func.h"
#include "kernels/num.h"
#include "shm/amends.h"
#include "tests/test.h"

#define WORLD_EXPERTS 6u
#define WORLD_SLABS 5u
#define WORLD_SLAB_BYTES (1u << 20)

struct world_layer {
    uint32_t type[N_MATS];
    uint32_t n_embd, n_ff;
    float limit;
    int has_scale;
    uint64_t file_off; /* of gate's expert 0; not on a page, as in a plain file */
};
struct world {
    struct child child; /* as worker 0 got it: own outbox PROC_FIRST_WORKER */
    struct geometry g;
    struct board *board;
    struct calls *calls;
    struct amends *amends;
    struct tables *tables;
    struct bell *bells;
    uint8_t *acts;
    uint8_t *slabs[MAX_NODES];
    struct outbox *box[MAX_PROCS];
    uint32_t n_workers;
    uint8_t *file; /* the model file, from offset 0 */
    uint64_t file_bytes;
    struct call call; /* the one being made */
    uint64_t epoch;
    uint64_t seed;
};

static inline uint32_t world_random(struct world *w)
{
    w->seed = w->seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(w->seed >> 33);
}
static inline float world_value(struct world *w) /* -1 .. 1 */
{
    return (float)world_random(w) / 0x1p30f - 1.0f;
}

static inline void *world_memory(uint64_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        abort();
    return p;
}
static inline void *world_seg(struct world *w, enum seg_role role, uint32_t index, uint64_t bytes)
{
    struct seg *s = &w->child.seg[w->child.n_segs++];

    *s = (struct seg){.fd = -1, .role = role, .index = index, .bytes = bytes};
    return s->base = world_memory(bytes);
}

/* Random rows of a type, with scales that keep the products tame. */
static inline void world_weights(struct world *w, uint32_t type, uint8_t *to, uint64_t bytes)
{
    const struct type_info *t = type_info(type);
    uint16_t d = f32_to_f16(1.0f / 4096);

    for (uint64_t i = 0; i < bytes; i++)
        to[i] = (uint8_t)world_random(w);
    for (uint64_t b = 0; b < bytes / t->block_bytes; b++) {
        uint8_t *block = to + b * t->block_bytes;
        float v = world_value(w);
        uint16_t h = f32_to_f16(v), bf = f32_to_bf16(v);
        switch (type) {
        case W_F32:
            memcpy(block, &v, 4);
            break;
        case W_F16:
            memcpy(block, &h, 2);
            break;
        case W_BF16:
            memcpy(block, &bf, 2);
            break;
        case W_Q6_K:
            memcpy(block + 208, &d, 2);
            break;
        case W_Q4_K:
        case W_Q5_K:
            memcpy(block + 2, &d, 2);
            memcpy(block, &d, 2);
            break;
        default: /* Q8_0 */
            memcpy(block, &d, 2);
        }
    }
}

static inline uint8_t *world_rows(struct world *w, uint32_t layer, uint32_t expert, int mat)
{
    const struct expert_matrix *m = &table_layer(w->tables, layer)->m[mat];

    return w->file + m->file_off + expert * m->stride;
}

static inline void world_layers(struct world *w, const struct world_layer *layer)
{
    for (uint32_t i = 0; i < w->g.n_layers; i++) {
        const struct world_layer *x = &layer[i];
        struct expert_layer *l = table_layer(w->tables, i);
        uint64_t off = x->file_off;
        l->n_experts = WORLD_EXPERTS;
        l->top_k = w->g.top_k;
        l->limit = x->limit;
        l->has_scale = (uint32_t)x->has_scale;
        for (int m = 0; m < N_MATS; m++) {
            struct expert_matrix *e = &l->m[m];
            e->type = x->type[m];
            e->rows = m == MAT_DOWN ? x->n_embd : x->n_ff;
            e->cols = m == MAT_DOWN ? x->n_ff : x->n_embd;
            if (type_row_bytes(e->type, e->cols, &e->row_bytes))
                abort();
            e->file_off = off;
            e->stride = e->rows * e->row_bytes;
            off += WORLD_EXPERTS * e->stride + 32;
            if (off > w->file_bytes)
                abort();
            world_weights(w, e->type, w->file + e->file_off, WORLD_EXPERTS * e->stride);
        }
        for (uint32_t e = 0; e < WORLD_EXPERTS; e++)
            for (int m = 0; m < N_MATS; m++)
                table_scale(w->tables, &w->g, i, e)[m] = 0.5f + (float)(e + (uint32_t)m) / 8;
    }
}

/* Layers of at most n_embd 512, n_ff 512. */
static inline void world_make(struct world *w, uint32_t n_nodes, uint32_t n_workers,
                              const struct world_layer *layer, uint32_t n_layers)
{
    struct geometry *g = &w->g;
    struct tables t;
    uint64_t at = sizeof t + 64;

    memset(w, 0, sizeof *w);
    w->seed = 7;
    *g = (struct geometry){.n_nodes = n_nodes,
                           .n_layers = n_layers,
                           .n_experts = WORLD_EXPERTS,
                           .top_k = 4,
                           .n_embd = 512,
                           .n_ff = 512,
                           .max_tokens = 40,
                           .max_items = 8,
                           .max_pairs = 160,
                           .amend_slots = 64,
                           .order_slots = 8,
                           .n_slabs = WORLD_SLABS};
    g->acts_half = (uint64_t)g->max_tokens * g->n_embd * 4;
    g->inter_half = (uint64_t)g->max_pairs * g->n_ff * 4;
    g->rows_half = (uint64_t)g->max_pairs * g->n_embd * 4;
    w->child.ctl = -1;
    w->child.outbox = PROC_FIRST_WORKER;
    w->board = world_seg(w, SEG_BOARD, 0, sizeof *w->board);
    w->board->geo = *g;
    w->board->watch = 1;
    w->calls = world_seg(w, SEG_CALLS, 0, calls_bytes(g));
    w->acts = world_seg(w, SEG_ACTS, 0, CALLS_IN_FLIGHT * g->acts_half);
    w->amends = world_seg(w, SEG_AMENDS, 0, amends_bytes(g));
    w->bells = world_seg(w, SEG_BELLS, 0, MAX_PROCS * sizeof(struct bell));
    t.off_entry = at, at += (uint64_t)n_layers * g->n_experts * 8;
    t.off_header = at, at += (uint64_t)n_nodes * g->n_slabs * 8;
    t.off_slab = at, at += (uint64_t)n_nodes * g->n_slabs * 8;
    t.off_layer = at, at += n_layers * sizeof(struct expert_layer);
    t.off_scale = at, at += (uint64_t)n_layers * g->n_experts * N_MATS * 4;
    w->tables = world_seg(w, SEG_TABLES, 0, at);
    *w->tables = t;
    for (uint32_t k = 0; k < n_nodes; k++) {
        w->slabs[k] = world_seg(w, SEG_SLABS, k, WORLD_SLABS * WORLD_SLAB_BYTES);
        for (uint32_t s = 0; s < WORLD_SLABS; s++)
            *table_slab_off(w->tables, g, k, s) = s * WORLD_SLAB_BYTES;
    }
    w->n_workers = n_workers;
    for (uint32_t i = 0; i < n_workers; i++)
        w->box[PROC_FIRST_WORKER + i] =
            world_seg(w, SEG_OUTBOX, PROC_FIRST_WORKER + i, outbox_bytes(g));
    w->file_bytes = 64u << 20;
    w->file = world_memory(w->file_bytes);
    w->call.items = calloc(g->max_items, sizeof *w->call.items);
    w->call.pairs = calloc(g->max_pairs, sizeof *w->call.pairs);
    world_layers(w, layer);
}

static inline void world_drop(struct world *w)
{
    for (size_t i = 0; i < w->child.n_segs; i++)
        munmap(w->child.seg[i].base, w->child.seg[i].bytes);
    munmap(w->file, w->file_bytes);
    free(w->call.items);
    free(w->call.pairs);
}

/* Reads an expert's shares into a place, as a pager does: whole blocks of the file. Returns its
 * epoch. */
static inline uint64_t world_load(struct world *w, uint32_t layer, uint32_t expert, uint32_t place)
{
    const struct expert_layer *l = table_layer(w->tables, layer);

    w->epoch++;
    for (uint32_t k = 0; k < w->g.n_nodes; k++) {
        for (int m = 0; m < N_MATS; m++) {
            struct slab_piece p = slab_piece(l, expert, k, w->g.n_nodes, m);
            if (p.bytes)
                memcpy(w->slabs[k] + *table_slab_off(w->tables, &w->g, k, place) + p.off,
                       w->file + p.file_off, (p.shift + p.bytes + 4095) & ~4095ull);
        }
        atomic_store(table_header(w->tables, &w->g, k, place), w->epoch);
    }
    return w->epoch;
}
/* What an eviction does first: nobody may begin there. */
static inline void world_mark(struct world *w, uint32_t place)
{
    for (uint32_t k = 0; k < w->g.n_nodes; k++)
        atomic_store(table_header(w->tables, &w->g, k, place), 0);
    atomic_thread_fence(memory_order_seq_cst);
}

/* ---- a call ---- */
static inline void world_call(struct world *w, uint64_t n, uint32_t layer, uint32_t n_tokens)
{
    float *x;

    w->call.head = (struct call_head){.seq = n,
                                      .layer = layer,
                                      .n_tokens = n_tokens,
                                      .top_k = w->g.top_k,
                                      .acts = (n % CALLS_IN_FLIGHT) * w->g.acts_half};
    x = (float *)(w->acts + w->call.head.acts);
    for (uint32_t i = 0; i < n_tokens * w->g.n_embd; i++)
        x[i] = world_value(w);
}
static inline float *world_acts(struct world *w, const struct call *c)
{
    return (float *)(w->acts + c->head.acts);
}
/* An item for the tokens t0, t0+step, ...; all shares get the same owner, see world_owner. */
static inline struct call_item *world_item(struct world *w, uint32_t expert, uint32_t place,
                                           uint64_t epoch, uint32_t rank, uint32_t t0,
                                           uint32_t step)
{
    struct call_item *it = &w->call.items[w->call.head.n_items++];

    *it = (struct call_item){.expert = expert, .place = place, .epoch = epoch};
    it->pair0 = w->call.head.n_pairs;
    for (uint32_t t = t0; t < w->call.head.n_tokens; t += step, it->n_pairs++)
        w->call.pairs[w->call.head.n_pairs++] = (struct call_pair){(uint16_t)t, (uint16_t)rank};
    for (uint32_t k = 0; k < w->g.n_nodes; k++)
        it->owner[k] = (uint16_t)(PROC_FIRST_WORKER + k % w->n_workers);
    return it;
}
static inline void world_ring(struct world *w)
{
    atomic_thread_fence(memory_order_seq_cst);
    for (uint32_t i = PROC_FIRST_WORKER; i < PROC_FIRST_WORKER + w->n_workers; i++)
        bell_ring_fenced(&w->bells[i], &w->box[i]->asleep);
}
static inline void world_publish(struct world *w)
{
    call_publish(&w->g, w->calls, &w->call);
    world_ring(w);
    atomic_store(&w->board->calls_rung, w->call.head.seq);
}
static inline uint64_t world_amend(struct world *w, uint64_t call, uint32_t item, uint32_t share,
                                   uint32_t outbox, uint32_t place, uint64_t epoch)
{
    struct amendment am = {.seq = atomic_load(&w->amends->head) + 1,
                           .call = call,
                           .item = item,
                           .share = (uint16_t)share,
                           .outbox = (uint16_t)outbox,
                           .place = place,
                           .epoch = epoch};

    amend_publish(&w->g, w->amends, w->calls, &am);
    world_ring(w);
    atomic_store(&w->board->amends_rung, am.seq);
    return am.seq;
}

/* ---- the plain answer ---- */
static inline float world_product(struct world *w, uint32_t layer, uint32_t expert, int mat,
                                  uint32_t row, const void *act)
{
    const struct expert_layer *l = table_layer(w->tables, layer);
    const struct expert_matrix *m = &l->m[mat];
    float y = dot_row(dot_type(m->type), world_rows(w, layer, expert, mat) + row * m->row_bytes,
                      m->cols, act);

    return f32_canon(l->has_scale ? y * table_scale(w->tables, &w->g, layer, expert)[mat] : y);
}
static inline void *world_act(uint32_t type, const float *x, uint32_t n)
{
    enum act_form f = type_info(type)->act;
    void *p = aligned_alloc(64, act_stride(f, n));

    act_prepare(f, x, n, p);
    return p;
}
/* y is n_embd floats: row of one token and expert (rules 27, 19). */
static inline void world_answer(struct world *w, uint32_t layer, uint32_t expert, const float *x,
                                float *y)
{
    const struct expert_layer *l = table_layer(w->tables, layer);
    uint32_t n_embd = l->m[MAT_GATE].cols, n_ff = l->m[MAT_GATE].rows;
    void *a = world_act(l->m[MAT_GATE].type, x, n_embd),
         *b = world_act(l->m[MAT_UP].type, x, n_embd);
    float *h = malloc(n_ff * sizeof *h);
    void *mid;

    for (uint32_t r = 0; r < n_ff; r++) {
        float g = world_product(w, layer, expert, MAT_GATE, r, a);
        float u = world_product(w, layer, expert, MAT_UP, r, b);
        if (l->limit > 0) {
            g = g > l->limit ? l->limit : g;
            u = u < -l->limit ? -l->limit : u > l->limit ? l->limit : u;
        }
        h[r] = f_silu(g) * u;
    }
    mid = world_act(l->m[MAT_DOWN].type, h, n_ff);
    for (uint32_t r = 0; r < n_embd; r++)
        y[r] = world_product(w, layer, expert, MAT_DOWN, r, mid);
    free(a);
    free(b);
    free(h);
    free(mid);
}
