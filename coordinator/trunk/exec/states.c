#include "coordinator/trunk/exec/states.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* one sequence in one of the two passes */
struct where {
    uint32_t begin, end; /* positions where its two versions end */
    uint32_t version;    /* the one that ends at end */
};
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
    struct where *where[2]; /* by pass: trunk, NextN; by sequence */
    int versions[2];        /* by pass: does it have any? */
    struct run *run;        /* of the step */
    uint32_t n_runs, cap_runs;
};

static uint32_t tail_rows(const struct program *p, const struct prog_state *st)
{
    return st->head_values + p->rollback;
}
static size_t matrix_values(const struct prog_state *st)
{
    return (size_t)st->heads * st->k_width * st->v_width;
}
static size_t kept_head(const struct prog_state *st)
{
    return st->k_width + st->v_width + st->decay + 1;
}

static uint64_t fixed_bytes(const struct program *p, const struct prog_state *st)
{
    if (st->kind == STATE_TAIL)
        return 2ull * tail_rows(p, st) * st->k_width * sizeof(float);
    if (st->kind == STATE_MATRIX)
        return (2ull * matrix_values(st) +
                (p->rollback ? (uint64_t)(p->rollback + 1) * st->heads * kept_head(st) : 0)) * sizeof(float);
    return 0;
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

/* Large and touched as the context grows: anonymous pages, not a memset. */
static uint8_t *pages(size_t bytes)
{
    void *p = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

struct states *states_open(const struct program *p, enum kv_type kv, uint32_t n_ctx, uint32_t n_seqs)
{
    struct states *s = calloc(1, sizeof *s);

    if (!s)
        return NULL;
    *s = (struct states){.p = p, .kv = kv, .n_ctx = n_ctx, .n_seqs = n_seqs};
    s->state = calloc(p->n_states + 1, sizeof *s->state);
    s->cap_runs = n_seqs;
    s->run = calloc(n_seqs, sizeof *s->run);
    for (int i = 0; i < 2; i++)
        s->where[i] = calloc(n_seqs, sizeof *s->where[i]);
    if (!s->state || !s->run || !s->where[0] || !s->where[1])
        goto no_memory;
    for (uint32_t i = 0; i < p->n_states; i++) {
        const struct prog_state *st = &p->state[i];
        struct state *q = &s->state[i];
        s->versions[st->draft] |= st->kind == STATE_TAIL || st->kind == STATE_MATRIX;
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

void states_close(struct states *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; s->state && i < s->p->n_states; i++)
        if (s->state[i].base)
            munmap(s->state[i].base, s->state[i].bytes ? s->state[i].bytes : 1);
    free(s->state);
    free(s->run);
    free(s->where[0]);
    free(s->where[1]);
    free(s);
}

/* ---- a step ---- */

/* The run's tokens follow the sequence as it is, or as it was. */
static void begin_run(struct states *s, struct where *w, struct run *r, int draft)
{
    if (r->pos == 0) {
        r->zero = 1;
    } else if (!s->versions[draft]) {
        ; /* rows by position alone: any step is good whose earlier rows are there */
    } else if (r->pos == w->end) {
        ;
    } else if (!draft && r->pos == w->begin) {
        w->version ^= 1; /* what the step wrote is forgotten */
    } else if (!draft) {
        assert(r->pos > w->begin && r->pos < w->end && w->end - w->begin <= s->p->rollback + 1);
        r->redo = r->pos - w->begin;
    } else {
        assert(r->pos < w->end && w->end - r->pos <= s->p->rollback);
    }
    r->from = w->version;
    w->begin = r->pos;
    w->end = r->pos + r->n;
    w->version ^= 1;
}

void states_begin(struct states *s, const struct step *step)
{
    int draft = step->pass != STEP_TRUNK;

    s->n_runs = 0;
    for (uint32_t t = 0; t < step->n_tokens;) {
        const struct step_token *tok = &step->token[t];
        struct run *r = &s->run[s->n_runs++];
        assert(s->n_runs <= s->cap_runs && tok->seq < s->n_seqs); /* a sequence's tokens lie together */
        *r = (struct run){.seq = tok->seq, .first = t, .pos = tok->pos};
        while (t < step->n_tokens && step->token[t].seq == r->seq) {
            assert(step->token[t].pos == r->pos + r->n);
            r->n++;
            t++;
        }
        begin_run(s, &s->where[draft][r->seq], r, draft);
    }
}

const struct run *states_runs(const struct states *s, uint32_t *n)
{
    *n = s->n_runs;
    return s->run;
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
           (size_t)version * tail_rows(s->p, st) * st->k_width;
}

const float *states_tail_row(const struct states *s, uint32_t state, const struct run *r, int64_t pos)
{
    const struct prog_state *st = &s->p->state[state];

    return pos < 0 ? NULL
                   : tail_version(s, state, r->seq, r->from) +
                         (size_t)((uint64_t)pos % tail_rows(s->p, st)) * st->k_width;
}

void states_tail_write(const struct states *s, uint32_t state, const struct run *r, uint32_t a, uint32_t b,
                       const float *rows, size_t stride)
{
    const struct prog_state *st = &s->p->state[state];
    uint32_t keep = tail_rows(s->p, st), width = st->k_width;
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

int states_keeps(const struct states *s, const struct run *r)
{
    return s->p->rollback && r->n <= s->p->rollback + 1;
}
