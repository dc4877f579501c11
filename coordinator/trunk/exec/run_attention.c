/* Attention over rows by position, and the choice of pools that it looks at. */
#include "coordinator/trunk/exec/run.h"
#include "kernels/index/index.h"
#include "kernels/norm/norm.h"
#include "kernels/rope/rope.h"
#include "kernels/topk/topk.h"

/* Work is cut into (kv head, group of tokens); a group's queries share loads of keys and values. */
#define ATTENTION_TOKENS 8
#define ATTENTION_QUERIES 256

size_t attention_scratch_bytes(const struct program *p)
{
    uint32_t hd = 0;

    for (uint32_t i = 0; i < p->n_states; i++)
        if (p->state[i].kind == STATE_KV && hd < p->state[i].head_values)
            hd = p->state[i].head_values;
    return hd ? attention_group_scratch(ATTENTION_QUERIES, hd) : 0;
}

void run_kv_append(struct exec *x, const struct op *op, struct part p)
{
    const struct prog_state *ps = &x->c.prog->state[op->state];
    uint32_t a, b, hd = ps->head_values, n_heads = ps->k_width / hd;
    size_t row = kv_bytes(x->c.kv, hd);

    cut(x->s->n_tokens, p, 1, &a, &b);
    for (uint32_t t = a; t < b; t++) {
        const struct step_token *tok = &x->s->token[t];
        for (uint32_t h = 0; h < n_heads; h++) {
            kv_store(x->c.kv, row_f32(x, op->in[0], t) + h * hd, hd,
                     states_keys(x->states, op->state, tok->seq, h) + tok->pos * row);
            if (op->in[1] != PROG_NONE)
                kv_store(x->c.kv, row_f32(x, op->in[1], t) + h * hd, hd,
                         states_values(x->states, op->state, tok->seq, h) + tok->pos * row);
        }
    }
}

static struct attention_keys keys_of(const struct exec *x, const struct op *op, uint32_t seq, uint32_t kv_head)
{
    uint32_t hd = op->n[2];
    size_t row = kv_bytes(x->c.kv, hd);

    return (struct attention_keys){.type = x->c.kv,
                                   .k = states_keys(x->states, op->state, seq, kv_head),
                                   .v = states_values(x->states, op->state, seq, kv_head),
                                   .k_stride = row,
                                   .v_stride = row,
                                   .hd = hd,
                                   .dv = hd,
                                   .scale = op->f[0]};
}

/* Query heads [h0, h1) of one kv head, tokens [t0, t1): those of one sequence and one list at a time. */
static void attend(struct exec *x, const struct op *op, uint32_t kv_head, uint32_t h0, uint32_t h1, uint32_t t0,
                   uint32_t t1, struct part p)
{
    struct attention_query q[ATTENTION_QUERIES];
    uint32_t hd = op->n[2];

    if (h0 >= h1)
        return;
    while (t0 < t1) {
        uint32_t seq = x->s->token[t0].seq, n = 0;
        struct attention_keys keys = keys_of(x, op, seq, kv_head);
        for (; t0 < t1 && x->s->token[t0].seq == seq && n + h1 - h0 <= ATTENTION_QUERIES; t0++) {
            const uint32_t *list = op->in[1] == PROG_NONE ? NULL : (const uint32_t *)row_f32(x, op->in[1], t0);
            uint32_t n_keys = x->s->token[t0].pos + 1;
            if (list && *list != LIST_ALL) {
                if (n) /* a list is one token's */
                    break;
                keys.list = list + 1;
                n_keys = *list;
            }
            for (uint32_t h = h0; h < h1; h++)
                q[n++] = (struct attention_query){.q = row_f32(x, op->in[0], t0) + h * hd,
                                                  .out = row_f32(x, op->out, t0) + h * hd,
                                                  .n = n_keys};
            if (keys.list) {
                t0++;
                break;
            }
        }
        attention_group(&keys, q, n, scratch_of(x, p));
    }
}

void run_attention(struct exec *x, const struct op *op, struct part p)
{
    uint32_t heads = op->n[0], kv_heads = op->n[1], group = heads / kv_heads, n_tok = x->s->n_tokens;
    uint32_t a, b, per = ATTENTION_QUERIES / group, chunks, pieces = 1, each;

    if (per > ATTENTION_TOKENS)
        per = ATTENTION_TOKENS;
    chunks = (n_tok + per - 1) / per;
    while (chunks * kv_heads * pieces < p.n && group / (2 * pieces) >= 4) /* a group's heads are shared too */
        pieces *= 2;
    each = (group + pieces - 1) / pieces;
    cut(chunks * kv_heads * pieces, p, 1, &a, &b);
    for (uint32_t w = a; w < b; w++) {
        uint32_t piece = w % pieces, kvh = w / pieces / chunks, t0 = w / pieces % chunks * per;
        uint32_t h0 = kvh * group + piece * each, h1 = h0 + each, end = (kvh + 1) * group;
        attend(x, op, kvh, h0 < end ? h0 : end, h1 < end ? h1 : end, t0, t0 + per < n_tok ? t0 + per : n_tok, p);
    }
}

/* ---- the index ---- */

/* Index key, or gate, of a position: this step's, or the tail's. */
static const float *member(const struct exec *x, const struct op *op, const struct run *r, uint32_t pos, int gate)
{
    uint32_t d = x->c.prog->state[op->state].k_width;

    if (pos >= r->pos)
        return row_f32(x, op->in[gate], r->first + (pos - r->pos));
    return states_tail_row(x->states, op->n[0], r, pos) + (gate ? d : 0);
}

/* pk = mean of a pool's keys, normed and rotated as its first position. */
static void mean_key(const struct exec *x, const struct op *op, const float *const *key, uint32_t first, float *pk)
{
    const struct prog_state *st = &x->c.prog->state[op->state];
    size_t at = (size_t)first * (x->c.prog->n_rot / 2);

    pool_mean(key, st->head_values, st->k_width, pk);
    rms_norm(pk, vector_of(x, op->w), pk, st->k_width, op->f[0]);
    rope_neox(pk, op->n[1], x->cos + at, x->sin + at);
}

void run_pool(struct exec *x, const struct op *op, struct part p)
{
    const struct prog_state *st = &x->c.prog->state[op->state];
    const float *key[POOL_MEMBERS], *gate[POOL_MEMBERS];
    uint32_t a, b, n_runs, d = st->k_width, count = st->head_values, gates = op->in[1] != PROG_NONE;
    const struct run *run = states_runs(x->states, &n_runs);

    for (const struct run *r = run; r < run + n_runs; r++) {
        uint32_t first = r->pos / count, last = (r->pos + r->n) / count; /* pools that end in this run */
        cut(last - first, p, 1, &a, &b);
        for (uint32_t pool = first + a; pool < first + b; pool++) {
            float *pk = states_pools(x->states, op->state, r->seq) + (size_t)pool * d;
            for (uint32_t i = 0; i < count; i++) {
                key[i] = member(x, op, r, pool * count + i, 0);
                gate[i] = gates ? member(x, op, r, pool * count + i, 1) : NULL;
            }
            if (gates)
                pool_gated(key, gate, vector_of(x, op->w), count, d, pk);
            else
                mean_key(x, op, key, pool * count, pk);
        }
        if (p.thread == 0)
            for (uint32_t g = 0; g <= gates; g++) /* keys, then gates, in a row of both */
                states_tail_write(x->states, op->n[0], r, g * d, g * d + d,
                                  (const float *)x->buf[op->in[g]].data, d);
    }
}

static int ascending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

/* The key list of a token at pos: the chosen pools' positions and those of the open one. */
static void make_list(uint32_t *list, const uint32_t *pool, uint32_t n, uint32_t count, uint32_t pos)
{
    uint32_t k = 1;

    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < count; j++)
            list[k++] = pool[i] * count + j;
    for (uint32_t at = (pos + 1) / count * count; at <= pos; at++)
        list[k++] = at;
    list[0] = k - 1;
}

/* Scores of this thread's part of the pools, of tokens [t0, t1). */
static void score(struct exec *x, const struct op *op, uint32_t t0, uint32_t t1, struct part p)
{
    const struct prog_state *st = &x->c.prog->state[op->state];
    uint32_t d = st->k_width, count = st->head_values;

    for (uint32_t t = t0; t < t1; t++) {
        uint32_t a, b, full = (x->s->token[t].pos + 1) / count;
        const float *pools = states_pools(x->states, op->state, x->s->token[t].seq);
        if (full <= op->n[1] && !x->dump)
            continue;
        cut(full, p, 8, &a, &b);
        if (a < b)
            index_scores(row_f32(x, op->in[0], t), op->in[1] == PROG_NONE ? NULL : row_f32(x, op->in[1], t), pools + (size_t)a * d, d, b - a, op->n[0],
                         d, op->f[0], x->scores + (size_t)(t - t0) * x->n_pools + a);
    }
}

static void choose(struct exec *x, const struct op *op, uint32_t t, const float *scores, uint32_t *pool)
{
    uint32_t count = x->c.prog->state[op->state].head_values, pos = x->s->token[t].pos, full = (pos + 1) / count;
    uint32_t *list = (uint32_t *)row_f32(x, op->out, t), n = full < op->n[1] ? full : op->n[1];

    if (x->dump) {
        int32_t *chosen = x->dump_chosen + (size_t)t * op->n[1];
        float *all = x->dump_scores + (size_t)t * x->n_pools;
        order_topk(scores, full, n, pool);
        for (uint32_t i = 0; i < op->n[1]; i++)
            chosen[i] = i < n ? (int32_t)pool[i] : -1;
        memset(all, 0, x->n_pools * sizeof *all);
        memcpy(all, scores, full * sizeof *all);
    }
    if (full <= op->n[1]) {
        *list = LIST_ALL;
        return;
    }
    order_topk(scores, full, n, pool);
    qsort(pool, n, sizeof *pool, ascending);
    make_list(list, pool, n, count, pos);
}

/* Tokens in groups: the team scores pools together, then each thread chooses for some tokens. */
void run_select(struct exec *x, const struct op *op, struct part p)
{
    for (uint32_t t0 = 0; t0 < x->s->n_tokens; t0 += SELECT_TOKENS) {
        uint32_t a, b, n = x->s->n_tokens - t0 < SELECT_TOKENS ? x->s->n_tokens - t0 : SELECT_TOKENS;
        score(x, op, t0, t0 + n, p);
        if (p.team)
            team_meet(x->team);
        cut(n, p, 1, &a, &b);
        for (uint32_t t = a; t < b; t++)
            choose(x, op, t0 + t, x->scores + (size_t)t * x->n_pools, (uint32_t *)scratch_of(x, p));
        if (p.team)
            team_meet(x->team);
    }
}
