/* Apart from the states themselves, because the CPU's executor and a card's have them in different places and
 * must agree on what a position means. */
#include "coordinator/trunk/exec/versions.h"

#include <assert.h>
#include <stdlib.h>

/* one sequence in one of the two passes */
struct where {
    uint32_t begin, end; /* positions where its two versions end */
    uint32_t version;    /* the one that ends at end */
};
struct saved {
    struct where where; /* of the copy: tails in version 0, matrices too, or in 1 where some tokens are kept */
    struct version_copy copy;
    int filled;
};
struct versions {
    const struct program *p;
    uint32_t n_seqs, n_saved;
    struct where *where[2]; /* by pass: trunk, NextN; by sequence */
    int any[2];             /* by pass: does it have tails or matrices? */
    struct saved *saved;
    struct run *run; /* of the step */
    uint32_t n_runs;
};

struct versions *versions_open(const struct program *p, uint32_t n_seqs, uint32_t n_saved)
{
    struct versions *v = calloc(1, sizeof *v);

    if (!v)
        return NULL;
    *v = (struct versions){.p = p, .n_seqs = n_seqs, .n_saved = n_saved};
    v->run = calloc(n_seqs, sizeof *v->run);
    v->saved = calloc(n_saved + 1, sizeof *v->saved);
    for (int i = 0; i < 2; i++)
        v->where[i] = calloc(n_seqs, sizeof *v->where[i]);
    for (uint32_t i = 0; i < p->n_states; i++)
        v->any[p->state[i].draft] |= p->state[i].kind == STATE_TAIL || p->state[i].kind == STATE_MATRIX;
    if (v->run && v->saved && v->where[0] && v->where[1])
        return v;
    versions_close(v);
    return NULL;
}

void versions_close(struct versions *v)
{
    if (!v)
        return;
    free(v->run);
    free(v->saved);
    free(v->where[0]);
    free(v->where[1]);
    free(v);
}

/* ---- a step ---- */

/* The run's tokens follow the sequence as it is, or as it was. */
static void begin_run(struct versions *v, struct where *w, struct run *r, int draft)
{
    if (r->pos == 0) {
        r->zero = 1;
    } else if (!v->any[draft]) {
        ; /* rows by position alone: any step is good whose earlier rows are there */
    } else if (r->pos == w->end) {
        ;
    } else if (!draft && r->pos == w->begin) {
        w->version ^= 1; /* what the step wrote is forgotten */
    } else if (!draft) {
        assert(r->pos > w->begin && r->pos < w->end && w->end - w->begin <= v->p->rollback + 1);
        r->redo = r->pos - w->begin;
    } else {
        assert(r->pos < w->end && w->end - r->pos <= v->p->rollback);
    }
    r->from = w->version;
    w->begin = r->pos;
    w->end = r->pos + r->n;
    w->version ^= 1;
}

void versions_begin(struct versions *v, const struct step *step)
{
    int draft = step->pass != STEP_TRUNK;

    v->n_runs = 0;
    for (uint32_t t = 0; t < step->n_tokens;) {
        const struct step_token *tok = &step->token[t];
        struct run *r = &v->run[v->n_runs++];
        assert(v->n_runs <= v->n_seqs && tok->seq < v->n_seqs); /* a sequence's tokens lie together */
        *r = (struct run){.seq = tok->seq, .first = t, .pos = tok->pos};
        while (t < step->n_tokens && step->token[t].seq == r->seq) {
            assert(step->token[t].pos == r->pos + r->n);
            r->n++;
            t++;
        }
        begin_run(v, &v->where[draft][r->seq], r, draft);
    }
}

const struct run *versions_runs(const struct versions *v, uint32_t *n)
{
    *n = v->n_runs;
    return v->run;
}

/* ---- saved states ---- */

struct version_copy versions_save(struct versions *v, uint32_t seq, uint32_t pos, uint32_t slot)
{
    const struct where *w = &v->where[0][seq];
    struct saved *s = &v->saved[slot];
    struct version_copy c = {.seq = seq, .pos = pos, .any = v->any[0] && pos, .tail = w->version, .matrix = w->version};

    assert(seq < v->n_seqs && slot < v->n_saved);
    *s = (struct saved){.where = {pos, pos, 0}, .copy = {.seq = seq, .pos = pos, .any = c.any}, .filled = 1};
    if (!c.any || pos == w->end) {
        ;
    } else if (pos == w->begin) {
        c.tail = c.matrix = w->version ^ 1;
    } else {
        assert(pos > w->begin && pos < w->end && w->end - w->begin <= v->p->rollback + 1);
        c.matrix = w->version ^ 1; /* before the step: what it kept brings it to pos */
        c.kept = 1;
        s->where.begin = w->begin;
        s->where.end = w->end;
        s->copy.matrix = 1;
        s->copy.kept = 1;
    }
    return c;
}

struct version_copy versions_restore(struct versions *v, uint32_t slot)
{
    const struct saved *s = &v->saved[slot];

    assert(slot < v->n_saved && s->filled);
    v->where[0][s->copy.seq] = s->where;
    return s->copy;
}
