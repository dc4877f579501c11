#include "coordinator/trunk/exec/states.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct state {
    uint8_t *base;
    size_t bytes;     /* of all sequences */
    size_t seq_bytes; /* of one */
    size_t v_at, row; /* STATE_KV: where values begin, a head's row */
};
struct states {
    const struct program *p;
    enum kv_type kv;
    uint32_t n_ctx, n_seqs;
    struct state *state;
    struct versions *versions;
    uint8_t *saved; /* slots of saved_bytes each */
    size_t saved_bytes;
    uint32_t n_saved;
};

static size_t matrix_values(const struct prog_state *st)
{
    return (size_t)st->heads * st->k_width * st->v_width;
}
static size_t kept_head(const struct prog_state *st)
{
    return st->k_width + st->v_width + st->decay + 1;
}

static size_t kept_bytes(const struct program *p, const struct prog_state *st)
{
    return p->rollback ? (size_t)(p->rollback + 1) * st->heads * kept_head(st) * sizeof(float) : 0;
}

/* One version, and kept tokens. */
static size_t version_bytes(const struct program *p, const struct prog_state *st)
{
    return (st->kind == STATE_TAIL     ? (size_t)state_tail_rows(p, st) * st->k_width
            : st->kind == STATE_MATRIX ? matrix_values(st)
                                       : 0) * sizeof(float);
}
static uint64_t saved_bytes(const struct program *p, const struct prog_state *st)
{
    return st->draft ? 0 : version_bytes(p, st) + (st->kind == STATE_MATRIX ? kept_bytes(p, st) : 0);
}

static uint64_t fixed_bytes(const struct program *p, const struct prog_state *st)
{
    return 2ull * version_bytes(p, st) + (st->kind == STATE_MATRIX ? kept_bytes(p, st) : 0);
}

static uint64_t position_bytes(const struct prog_state *st, enum kv_type kv, uint64_t n_ctx)
{
    if (st->kind == STATE_KV)
        return (kv_bytes(kv, st->k_width) + kv_bytes(kv, st->v_width)) * n_ctx;
    if (st->kind == STATE_POOLS)
        return (n_ctx + st->head_values - 1) / st->head_values * st->k_width * sizeof(float);
    return 0;
}

uint64_t states_fixed_bytes(const struct program *p)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < p->n_states; i++)
        n += fixed_bytes(p, &p->state[i]);
    return n;
}

uint64_t states_bytes(const struct program *p, enum kv_type kv, uint64_t n_ctx)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < p->n_states; i++)
        n += fixed_bytes(p, &p->state[i]) + position_bytes(&p->state[i], kv, n_ctx);
    return n;
}

uint64_t states_saved_bytes(const struct program *p)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < p->n_states; i++)
        n += saved_bytes(p, &p->state[i]);
    return n;
}

/* Large and touched as the context grows: anonymous pages, not a memset. */
static uint8_t *pages(size_t bytes)
{
    void *p = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

struct states *states_open(const struct program *p, enum kv_type kv, uint32_t n_ctx, uint32_t n_seqs, uint32_t n_saved)
{
    struct states *s = calloc(1, sizeof *s);

    if (!s)
        return NULL;
    *s = (struct states){.p = p, .kv = kv, .n_ctx = n_ctx, .n_seqs = n_seqs, .n_saved = n_saved};
    s->state = calloc(p->n_states + 1, sizeof *s->state);
    s->versions = versions_open(p, n_seqs, n_saved);
    s->saved_bytes = states_saved_bytes(p);
    s->saved = pages(n_saved * s->saved_bytes);
    if (!s->state || !s->versions || !s->saved)
        goto no_memory;
    for (uint32_t i = 0; i < p->n_states; i++) {
        const struct prog_state *st = &p->state[i];
        struct state *q = &s->state[i];
        q->seq_bytes = fixed_bytes(p, st) + position_bytes(st, kv, n_ctx);
        q->bytes = q->seq_bytes * n_seqs;
        q->row = st->kind == STATE_KV ? kv_bytes(kv, st->head_values) : 0;
        q->v_at = st->kind == STATE_KV && st->v_width ? kv_bytes(kv, st->k_width) * n_ctx * n_seqs : 0;
        q->base = pages(q->bytes);
        if (!q->base)
            goto no_memory;
    }
    return s;
no_memory:
    states_close(s);
    return NULL;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

void states_close(struct states *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; s->state && i < s->p->n_states; i++)
        if (s->state[i].base)
            munmap(s->state[i].base, s->state[i].bytes ? s->state[i].bytes : 1);
    free(s->state);
    if (s->saved)
        munmap(s->saved, larger(s->n_saved * s->saved_bytes, 1));
    versions_close(s->versions);
    free(s);
}

/* ---- a step ---- */

void states_begin(struct states *s, const struct step *step)
{
    versions_begin(s->versions, step);
}

const struct run *states_runs(const struct states *s, uint32_t *n)
{
    return versions_runs(s->versions, n);
}

/* ---- places ---- */

uint8_t *states_keys(const struct states *s, uint32_t state, uint32_t seq, uint32_t head)
{
    const struct prog_state *st = &s->p->state[state];

    return s->state[state].base +
           ((size_t)seq * (st->k_width / st->head_values) + head) * s->n_ctx * s->state[state].row;
}

uint8_t *states_values(const struct states *s, uint32_t state, uint32_t seq, uint32_t head)
{
    return states_keys(s, state, seq, head) + s->state[state].v_at;
}

float *states_pools(const struct states *s, uint32_t state, uint32_t seq)
{
    return (float *)(s->state[state].base + seq * s->state[state].seq_bytes);
}

static float *tail_version(const struct states *s, uint32_t state, uint32_t seq, uint32_t version)
{
    const struct prog_state *st = &s->p->state[state];

    return (float *)(s->state[state].base + seq * s->state[state].seq_bytes) +
           (size_t)version * state_tail_rows(s->p, st) * st->k_width;
}

const float *states_tail_row(const struct states *s, uint32_t state, const struct run *r, int64_t pos)
{
    const struct prog_state *st = &s->p->state[state];

    return pos < 0 ? NULL
                   : tail_version(s, state, r->seq, r->from) +
                         (size_t)((uint64_t)pos % state_tail_rows(s->p, st)) * st->k_width;
}

void states_tail_write(const struct states *s, uint32_t state, const struct run *r, uint32_t a, uint32_t b,
                       const float *rows, size_t stride)
{
    const struct prog_state *st = &s->p->state[state];
    uint32_t keep = state_tail_rows(s->p, st), width = st->k_width;
    int64_t end = (int64_t)r->pos + r->n, first = end - keep;
    float *to = tail_version(s, state, r->seq, r->from ^ 1);

    for (int64_t pos = first < 0 ? 0 : first; pos < end; pos++) {
        const float *row = pos < (int64_t)r->pos ? states_tail_row(s, state, r, pos) + a
                                                 : rows + (size_t)(r->first + (pos - r->pos)) * stride;
        memcpy(to + (size_t)((uint64_t)pos % keep) * width + a, row, (b - a) * sizeof *to);
    }
}

float *states_matrix(const struct states *s, uint32_t state, uint32_t seq, uint32_t version, uint32_t head)
{
    const struct prog_state *st = &s->p->state[state];

    return (float *)(s->state[state].base + seq * s->state[state].seq_bytes) + version * matrix_values(st) +
           (size_t)head * st->k_width * st->v_width;
}

struct kept states_kept(const struct states *s, uint32_t state, uint32_t seq, uint32_t i, uint32_t head)
{
    const struct prog_state *st = &s->p->state[state];
    float *at = (float *)(s->state[state].base + seq * s->state[state].seq_bytes) + 2 * matrix_values(st) +
                ((size_t)i * st->heads + head) * kept_head(st);

    return (struct kept){at, at + st->k_width, at + st->k_width + st->v_width,
                         at + st->k_width + st->v_width + st->decay};
}

/* ---- saved ---- */

/* One sequence's state i to the slot's bytes at `at`, or from there. */
static void copy_state(struct states *s, uint32_t i, const struct version_copy *c, uint8_t *at, int back)
{
    const struct prog_state *st = &s->p->state[i];
    uint8_t *of = s->state[i].base + c->seq * s->state[i].seq_bytes;
    size_t one = version_bytes(s->p, st), kept = st->kind == STATE_MATRIX && c->kept ? kept_bytes(s->p, st) : 0;
    uint8_t *version = of + (st->kind == STATE_TAIL ? c->tail : c->matrix) * one;

    memcpy(back ? version : at, back ? at : version, one);
    memcpy(back ? of + 2 * one : at + one, back ? at + one : of + 2 * one, kept);
}

static void copy(struct states *s, const struct version_copy *c, uint32_t slot, int back)
{
    uint8_t *at = s->saved + slot * s->saved_bytes;

    for (uint32_t i = 0; c->any && i < s->p->n_states; i++)
        if (saved_bytes(s->p, &s->p->state[i])) {
            copy_state(s, i, c, at, back);
            at += saved_bytes(s->p, &s->p->state[i]);
        }
}

void states_save(struct states *s, uint32_t seq, uint32_t pos, uint32_t slot)
{
    const struct version_copy c = versions_save(s->versions, seq, pos, slot);

    copy(s, &c, slot, 0);
}

uint32_t states_restore(struct states *s, uint32_t slot)
{
    const struct version_copy c = versions_restore(s->versions, slot);

    copy(s, &c, slot, 1);
    return c.pos;
}
