/* The image: a head, then the program's arrays as they are. Both sides are of one build (spawn.c), so the
 * structures need no other form. */
#include "coordinator/trunk/exec/wire.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/hyper/hyper.h"
#include "kernels/index/index.h"
#include "kernels/type/type.h"
#include "shm/size.h"

#define WIRE_MAGIC 0x474f5250434e4f43ull /* "CONCPROG" */
#define MOST 1000000u                    /* of operations, buffers, weights, states */
#define MOST_VALUES (1u << 26)           /* of a buffer's row */
#define MOST_GROUP 256u                  /* query heads of a kv head (run_attention.c) */
#define MOST_TAPS 16u                    /* of a convolution (run_delta.c) */
#define MOST_GAP 16u
#define MOST_ROUNDS 1000u                /* of the mixing matrix */
#define MOST_ROLLBACK 64u

struct wire_head {
    uint64_t magic, bytes;
    uint32_t n_ops, n_buffers, n_weights, n_states;
    uint32_t n_embd, n_vocab, top_k, n_rot, logits, kv;
    uint32_t draft_at, draft_logits, rollback, token_bytes;
    double rope_base;
};

uint64_t wire_bytes(const struct program *p)
{
    return sizeof(struct wire_head) + (uint64_t)p->n_ops * sizeof *p->op +
           (uint64_t)p->n_buffers * sizeof *p->buffer + (uint64_t)p->n_states * sizeof *p->state +
           (uint64_t)p->n_weights * (sizeof *p->weight + sizeof(struct weight_at));
}

static uint8_t *put(uint8_t *to, const void *from, uint64_t bytes)
{
    memcpy(to, from, bytes);
    return to + bytes;
}

void wire_write(const struct program *p, const struct weight_at *at, enum kv_type kv, uint8_t *out)
{
    struct wire_head h = {WIRE_MAGIC, wire_bytes(p), p->n_ops, p->n_buffers, p->n_weights, p->n_states,
                          p->n_embd, p->n_vocab, p->top_k, p->n_rot, p->logits, (uint32_t)kv,
                          p->draft_at, p->draft_logits, p->rollback, p->token_bytes, p->rope_base};

    out = put(out, &h, sizeof h);
    out = put(out, p->weight, (uint64_t)p->n_weights * sizeof *p->weight); /* 8-byte fields first */
    out = put(out, at, (uint64_t)p->n_weights * sizeof *at);
    out = put(out, p->op, (uint64_t)p->n_ops * sizeof *p->op);
    out = put(out, p->buffer, (uint64_t)p->n_buffers * sizeof *p->buffer);
    put(out, p->state, (uint64_t)p->n_states * sizeof *p->state);
}

/* ---- checking ---- */

struct check {
    const struct program *p;
    const struct geometry *g;
    uint32_t used; /* of the open call of experts; 0: none */
};

static uint32_t rows_kind(const struct program *p, uint32_t buf)
{
    return p->buffer[buf].rows;
}
/* a buffer of at least n values a row, token rows or output rows */
static int has(const struct program *p, uint32_t buf, uint64_t n, uint32_t rows)
{
    return buf < p->n_buffers && p->buffer[buf].width >= n && rows_kind(p, buf) == rows;
}
static int is_vector(const struct program *p, uint32_t w, uint64_t n)
{
    return w < p->n_weights && p->weight[w].rows == 1 && p->weight[w].cols >= n;
}

/* Is it prepared in that form, as so many vectors a row? */
static int prepared(const struct prog_buffer *b, uint32_t form, uint32_t parts)
{
    return form == ACT_F32 || (form <= ACT_A256 && b->forms >> form & 1 && (b->parts ? b->parts : 1) == parts);
}

static int good_matmul_parts(const struct program *p, const struct op *o)
{
    const struct prog_weight *w = o->w < p->n_weights ? &p->weight[o->w] : NULL;
    const struct prog_buffer *in = o->in[0] < p->n_buffers ? &p->buffer[o->in[0]] : NULL;

    return w && in && o->n[1] && w->rows % o->n[1] == 0 && in->width == (uint64_t)w->cols * o->n[1] &&
           has(p, o->out, w->rows, in->rows) && o->n[0] == (uint32_t)type_info(w->type)->act &&
           prepared(in, o->n[0], o->n[1]) && (w->scale == PROG_NONE || is_vector(p, w->scale, 1)) &&
           w->bias == PROG_NONE;
}

static int good_matmul(const struct program *p, const struct op *o)
{
    const struct prog_weight *w = o->w < p->n_weights ? &p->weight[o->w] : NULL;
    const struct prog_buffer *in = o->in[0] < p->n_buffers ? &p->buffer[o->in[0]] : NULL;

    return w && in && in->width == w->cols && has(p, o->out, w->rows, in->rows) &&
           o->n[0] == (uint32_t)type_info(w->type)->act && prepared(in, o->n[0], 1) &&
           (w->scale == PROG_NONE || is_vector(p, w->scale, 1)) &&
           (w->bias == PROG_NONE || is_vector(p, w->bias, w->rows));
}

static const struct prog_state *state_of(const struct program *p, uint32_t state, enum state_kind kind)
{
    return state < p->n_states && p->state[state].kind == (uint32_t)kind ? &p->state[state] : NULL;
}

/* A buffer of exactly n values a row. */
static int is_row(const struct program *p, uint32_t buf, uint64_t n, uint32_t rows)
{
    return has(p, buf, n, rows) && p->buffer[buf].width == n;
}

static int good_attention(const struct program *p, const struct op *o)
{
    const struct prog_state *s = state_of(p, o->state, STATE_KV);
    uint64_t values = (uint64_t)o->n[0] * o->n[2];

    return s && o->n[1] && o->n[0] && o->n[0] % o->n[1] == 0 && o->n[0] / o->n[1] <= MOST_GROUP &&
           s->head_values == o->n[2] && s->k_width == (uint64_t)o->n[1] * o->n[2] &&
           has(p, o->in[0], values, 0) && has(p, o->out, values, 0) &&
           (o->in[1] == PROG_NONE || (has(p, o->in[1], 2, 0) && p->buffer[o->in[1]].type == BUF_I32));
}

static int good_append(const struct program *p, const struct op *o)
{
    const struct prog_state *s = state_of(p, o->state, STATE_KV);

    return s && has(p, o->in[0], s->k_width, 0) &&
           (o->in[1] == PROG_NONE ? !s->v_width : s->v_width && has(p, o->in[1], s->v_width, 0));
}

/* n[1] pieces of n[0] values, from the operand's beginning, to the result's value n[3] on */
static int good_pieces(const struct program *p, const struct op *o, uint32_t at)
{
    uint64_t values = (uint64_t)o->n[0] * o->n[1];

    return o->in[0] < p->n_buffers && o->n[0] && o->n[1] <= MOST_VALUES && at <= MOST_VALUES &&
           has(p, o->in[0], values, rows_kind(p, o->in[0])) && has(p, o->out, values + at, rows_kind(p, o->in[0]));
}

/* in[0] and out of one width, elementwise */
static int good_values(const struct program *p, const struct op *o)
{
    return o->out < p->n_buffers && is_row(p, o->in[0], p->buffer[o->out].width, rows_kind(p, o->out));
}

/* out is n vectors of in[0]'s width */
static int good_each(const struct program *p, const struct op *o, uint32_t n)
{
    return o->out < p->n_buffers && o->in[0] < p->n_buffers && n && o->in[0] != o->out &&
           rows_kind(p, o->in[0]) == rows_kind(p, o->out) &&
           p->buffer[o->out].width == (uint64_t)n * p->buffer[o->in[0]].width;
}

/* buffer X is n vectors of buffer y's width */
static int good_branches(const struct program *p, uint32_t n, uint32_t X, uint32_t y)
{
    return n && n <= HYPER_STREAMS && y < p->n_buffers && !rows_kind(p, y) &&
           is_row(p, X, (uint64_t)n * p->buffer[y].width, 0);
}

/* the rows lie in what is handed over for a token */
static int good_rows(const struct check *c, const struct op *o)
{
    const struct type_info *t = type_info(o->n[3]);
    uint64_t row;

    return t && t->built && o->n[1] && o->n[2] && o->n[1] <= MOST_VALUES && o->n[2] <= MOST_VALUES &&
           !type_row_bytes(o->n[3], o->n[2], &row) && o->n[0] + (uint64_t)o->n[1] * row <= c->p->token_bytes &&
           is_row(c->p, o->out, (uint64_t)o->n[1] * o->n[2], 0);
}

static int good_conv(const struct program *p, const struct op *o)
{
    const struct prog_state *s = state_of(p, o->state, STATE_TAIL);

    return s && o->n[0] && o->n[0] <= MOST_TAPS && o->n[1] && o->n[1] <= MOST_GAP &&
           s->head_values == (o->n[0] - 1) * o->n[1] && is_row(p, o->in[0], s->k_width, 0) &&
           is_row(p, o->out, s->k_width, 0) && o->out != o->in[0] &&
           is_vector(p, o->w, (uint64_t)o->n[0] * s->k_width);
}

static int good_decay(const struct program *p, const struct op *o)
{
    return good_values(p, o) && !rows_kind(p, o->out) && o->n[0] && p->buffer[o->out].width % o->n[0] == 0 &&
           is_vector(p, o->w, o->n[0]) && is_vector(p, o->n[2], p->buffer[o->out].width);
}

static int good_delta(const struct program *p, const struct op *o)
{
    const struct prog_state *s = state_of(p, o->state, STATE_MATRIX);

    return s && has(p, o->in[0], (uint64_t)s->k_heads * s->k_width, 0) &&
           has(p, o->in[1], (uint64_t)s->k_heads * s->k_width, 0) && has(p, o->n[0], (uint64_t)s->heads * s->v_width, 0) &&
           has(p, o->n[1], (uint64_t)s->heads * s->decay, 0) && has(p, o->n[2], s->heads, 0) &&
           has(p, o->out, (uint64_t)s->heads * s->v_width, 0);
}

static int good_pool(const struct program *p, const struct op *o)
{
    const struct prog_state *s = state_of(p, o->state, STATE_POOLS), *t = state_of(p, o->n[0], STATE_TAIL);

    if (!s || !t || t->head_values != s->head_values - 1 || t->draft != s->draft || !is_row(p, o->in[0], s->k_width, 0))
        return 0;
    if (o->in[1] == PROG_NONE)
        return t->k_width == s->k_width && is_vector(p, o->w, s->k_width) && o->n[1] <= s->k_width && o->n[1] <= p->n_rot;
    return t->k_width == 2ull * s->k_width && is_row(p, o->in[1], s->k_width, 0) &&
           is_vector(p, o->w, (uint64_t)s->k_width * s->head_values);
}

static int good_select(const struct program *p, const struct op *o)
{
    const struct prog_state *s = state_of(p, o->state, STATE_POOLS);

    return s && o->n[0] && o->n[0] <= MOST_VALUES && o->n[1] && o->n[1] <= MOST_VALUES &&
           has(p, o->in[0], (uint64_t)o->n[0] * s->k_width, 0) && (o->in[1] == PROG_NONE || has(p, o->in[1], o->n[0], 0)) &&
           has(p, o->out, 1 + ((uint64_t)o->n[1] + 1) * s->head_values, 0) && p->buffer[o->out].type == BUF_I32;
}

/* coefficients of n[0] streams in buffer mix, the streams in X, one vector in y */
static int good_streams(const struct program *p, uint32_t n, uint32_t X, uint32_t y, uint32_t mix)
{
    return n && n <= HYPER_STREAMS && y < p->n_buffers && !rows_kind(p, y) &&
           is_row(p, X, (uint64_t)n * p->buffer[y].width, 0) && (mix == PROG_NONE || has(p, mix, (2ull + n) * n, 0));
}

static int good_router(const struct check *c, const struct op *o)
{
    const struct program *p = c->p;

    return o->n[0] <= c->g->n_experts && o->n[1] && o->n[1] <= o->n[0] && o->n[1] <= c->g->top_k &&
           o->n[2] <= (ROUTER_NORMALISE | ROUTER_SIGMOID) && has(p, o->in[0], o->n[0], 0) && has(p, o->out, o->n[0], 0) &&
           has(p, o->n[3], o->n[1], 0) && has(p, o->n[4], o->n[1], 0) && o->in[0] != o->out &&
           (o->w == PROG_NONE || is_vector(p, o->w, o->n[0]));
}

static int good_call(struct check *c, const struct op *o)
{
    /* ids and weights are packed rows of n[1] */
    if (c->used || o->n[0] >= c->g->n_layers || !o->n[1] || o->n[1] > c->g->top_k ||
        !is_row(c->p, o->in[0], c->g->n_embd, 0) || !is_row(c->p, o->in[1], o->n[1], 0))
        return 0;
    c->used = o->n[1];
    return 1;
}

static int good_sum(struct check *c, const struct op *o)
{
    if (!c->used || !is_row(c->p, o->in[1], c->used, 0) || !is_row(c->p, o->out, c->g->n_embd, 0))
        return 0;
    c->used = 0;
    return 1;
}

static int good_op(struct check *c, const struct op *o)
{
    const struct program *p = c->p;

    if (o->heads && (o->out >= p->n_buffers || p->buffer[o->out].width % o->heads))
        return 0;
    switch ((enum op_kind)o->kind) {
    case OP_EMBED:
        return o->w < p->n_weights && p->weight[o->w].rows >= c->g->n_vocab &&
               has(p, o->out, p->weight[o->w].cols, 0);
    case OP_PREPARE:
        return o->in[0] < p->n_buffers && o->n[0] <= ACT_A256 &&
               (o->n[0] == ACT_F32 || p->buffer[o->in[0]].forms >> o->n[0] & 1);
    case OP_MATMUL:
        return good_matmul(p, o);
    case OP_MATMUL_PARTS:
        return good_matmul_parts(p, o);
    case OP_RMS_NORM:
        return good_pieces(p, o, o->n[3]) && o->n[2] <= 1 &&
               (o->w == PROG_NONE || is_vector(p, o->w, (uint64_t)o->n[0] * (o->n[2] ? o->n[1] : 1)));
    case OP_L2_NORM:
        return good_pieces(p, o, 0);
    case OP_GATED_NORM:
        return good_pieces(p, o, 0) && has(p, o->in[1], (uint64_t)o->n[0] * o->n[1], rows_kind(p, o->in[0])) &&
               is_vector(p, o->w, o->n[0]);
    case OP_LAYER_NORM:
        return good_values(p, o) && is_vector(p, o->w, p->buffer[o->out].width) &&
               is_vector(p, o->n[0], p->buffer[o->out].width);
    case OP_FUNC:
        return good_values(p, o) && o->n[0] < FUNC_KINDS;
    case OP_SLICE:
        return o->in[0] < p->n_buffers && o->n[0] <= MOST_VALUES && o->n[1] <= MOST_VALUES && o->n[2] <= MOST_VALUES &&
               o->n[3] <= MOST_VALUES && (uint64_t)o->n[1] + o->n[2] <= o->n[3] && o->in[0] != o->out &&
               has(p, o->in[0], (uint64_t)o->n[0] * o->n[3], rows_kind(p, o->in[0])) &&
               has(p, o->out, (uint64_t)o->n[0] * o->n[1], rows_kind(p, o->in[0]));
    case OP_MUL:
        return good_values(p, o);
    case OP_ADD_TIMES:
        return good_each(p, o, o->n[0]) && has(p, o->in[1], o->n[0], rows_kind(p, o->out));
    case OP_SCALE:
        return o->out < p->n_buffers && o->n[0] <= 1;
    case OP_ROWS:
        return good_rows(c, o);
    case OP_BRANCH_MEAN:
        return good_branches(p, o->n[0], o->in[0], o->out) && good_branches(p, o->n[0], o->in[1], o->out);
    case OP_BRANCH_GATE:
        return good_branches(p, o->n[0], o->in[0], o->n[1]) && good_branches(p, o->n[0], o->in[1], o->n[1]) &&
               good_branches(p, o->n[0], o->out, o->n[1]) && o->out != o->in[0] && o->out != o->in[1] && o->out != o->n[1];
    case OP_SWIGLU:
        return good_values(p, o) && is_row(p, o->in[1], p->buffer[o->out].width, rows_kind(p, o->out));
    case OP_REPEAT:
        return o->in[0] < p->n_buffers && !rows_kind(p, o->in[0]) && o->n[0] <= MOST_VALUES &&
               has(p, o->out, (uint64_t)o->n[0] * p->buffer[o->in[0]].width, 0);
    case OP_ROPE:
        return o->n[0] <= MOST_VALUES && has(p, o->out, (uint64_t)o->n[0] * o->n[1], 0) &&
               o->n[2] <= o->n[1] && o->n[2] <= p->n_rot && o->n[3] <= 1;
    case OP_KV_APPEND:
        return good_append(p, o);
    case OP_ATTENTION:
        return good_attention(p, o);
    case OP_CONV:
        return good_conv(p, o);
    case OP_DECAY:
        return good_decay(p, o);
    case OP_DELTA:
        return good_delta(p, o);
    case OP_POOL:
        return good_pool(p, o);
    case OP_SELECT:
        return good_select(p, o);
    case OP_HYPER_MIX:
        return o->n[0] && o->n[0] <= HYPER_STREAMS && o->n[1] && o->n[1] <= MOST_ROUNDS &&
               has(p, o->in[0], (2ull + o->n[0]) * o->n[0], 0) && has(p, o->out, (2ull + o->n[0]) * o->n[0], 0) &&
               is_vector(p, o->w, 3) && is_vector(p, o->n[2], (2ull + o->n[0]) * o->n[0]);
    case OP_HYPER_COLLAPSE:
        return o->in[1] != PROG_NONE && good_streams(p, o->n[0], o->in[0], o->out, o->in[1]);
    case OP_HYPER_EXPAND:
        return o->in[1] != PROG_NONE && good_streams(p, o->n[0], o->out, o->in[0], o->in[1]);
    case OP_HYPER_MEAN:
        return good_streams(p, o->n[0], o->in[0], o->out, PROG_NONE);
    case OP_ADD:
        return o->out < p->n_buffers && has(p, o->in[0], p->buffer[o->out].width, rows_kind(p, o->out)) &&
               (o->in[1] == PROG_NONE || has(p, o->in[1], p->buffer[o->out].width, rows_kind(p, o->out)));
    case OP_ROUTER:
        return good_router(c, o);
    case OP_MOE_CALL:
        return good_call(c, o);
    case OP_MOE_SUM:
        return good_sum(c, o);
    case OP_PICK:
        return o->out < p->n_buffers && has(p, o->out, 1, 1) && has(p, o->in[0], p->buffer[o->out].width, 0);
    case OP_CARRY:
        return o->out < p->n_buffers && has(p, o->out, 1, 0) && has(p, o->in[0], p->buffer[o->out].width, 1);
    case OP_KINDS:
        break;
    }
    return 0;
}

static int good_state(const struct prog_state *s)
{
    if (!s->k_width || s->k_width > MOST_VALUES || s->draft > 1)
        return 0;
    switch ((enum state_kind)s->kind) {
    case STATE_KV:
        return s->head_values && (!s->v_width || s->k_width == s->v_width) && s->k_width % s->head_values == 0;
    case STATE_POOLS:
        return s->head_values && s->head_values <= POOL_MEMBERS;
    case STATE_TAIL:
        return s->head_values <= POOL_MEMBERS;
    case STATE_MATRIX:
        return s->v_width && s->v_width <= MOST_VALUES && s->heads && s->heads <= MOST_VALUES &&
               s->k_heads && s->k_heads <= s->heads &&
               (uint64_t)s->heads * s->k_width * s->v_width <= MOST_VALUES && (s->decay == 1 || s->decay == s->k_width);
    case STATE_KINDS:
        break;
    }
    return 0;
}

/* States belong to the part of the program that counts their positions. */
static int good_part(const struct program *p, uint32_t at)
{
    struct op_uses u = program_uses(&p->op[at]);

    for (int i = 0; i < USES_STATES; i++)
        if (u.state[i] != PROG_NONE && p->state[u.state[i]].draft != (at >= p->draft_at))
            return 0;
    return 1;
}

static int check_weight(const struct prog_weight *w, const struct weight_at *at, uint32_t i,
                        uint64_t trunk_bytes, struct err *e)
{
    const struct type_info *t = type_info(w->type);
    uint64_t row, all;

    if (!t || !t->built || !w->rows || !w->cols || type_row_bytes(w->type, w->cols, &row) ||
        row != w->row_bytes || u64_mul(row, w->rows, &all) || u64_add(all, at->off, &all) ||
        all > trunk_bytes || at->vector > 1 || (at->vector && w->rows != 1) ||
        (w->type == W_F32 && at->off % sizeof(float)))
        return err_set(e, -EPROTO, "program: weight %u: (%u, %u) of type %u at %llu does not lie in the trunk",
                       i, w->rows, w->cols, w->type, (unsigned long long)at->off);
    return 0;
}

static int check_all(const struct program *p, const struct weight_at *at, uint64_t trunk_bytes,
                     const struct geometry *g, struct err *e)
{
    struct check c = {p, g, 0};
    int rc;

    for (uint32_t i = 0; i < p->n_weights; i++)
        if ((rc = check_weight(&p->weight[i], &at[i], i, trunk_bytes, e)))
            return rc;
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        const struct prog_buffer *b = &p->buffer[i];
        uint32_t vectors = b->parts ? b->parts : 1;
        if (!b->width || b->width > MOST_VALUES || b->type > BUF_I32 || b->rows > 1 || b->forms >> 3 ||
            (b->parts && b->width % b->parts) || ((b->forms >> ACT_A32 & 1) && b->width / vectors % 32) ||
            ((b->forms >> ACT_A256 & 1) && b->width / vectors % 256))
            return err_set(e, -EPROTO, "program: buffer %u: %u values, type %u, rows %u, forms %u", i,
                           b->width, b->type, b->rows, b->forms);
    }
    for (uint32_t i = 0; i < p->n_states; i++) {
        const struct prog_state *s = &p->state[i];
        if (!good_state(s))
            return err_set(e, -EPROTO, "program: state %u of kind %u: keys %u, values %u, head %u", i, s->kind,
                           s->k_width, s->v_width, s->head_values);
    }
    if (p->token_bytes != g->token_bytes)
        return err_set(e, -EPROTO, "program: %u bytes of rows a token, %u are handed over", p->token_bytes, g->token_bytes);
    if (p->draft_at > p->n_ops || p->rollback > MOST_ROLLBACK)
        return err_set(e, -EPROTO, "program: its second part begins at operation %u of %u, %u tokens go back",
                       p->draft_at, p->n_ops, p->rollback);
    for (uint32_t i = 0; i < p->n_ops; i++)
        if (p->op[i].kind >= OP_KINDS || p->op[i].name[PROG_NAME - 1] || (i == p->draft_at && c.used) ||
            !good_op(&c, &p->op[i]) || !good_part(p, i))
            return err_set(e, -EPROTO, "program: operation %u (%s) makes no sense", i,
                           op_name((enum op_kind)p->op[i].kind));
    if (c.used || p->n_embd != g->n_embd || p->n_vocab != g->n_vocab || p->top_k > g->top_k ||
        p->n_rot > MOST_VALUES || !has(p, p->logits, p->n_vocab, 1) || p->buffer[p->logits].width != p->n_vocab ||
        (p->draft_at < p->n_ops && !is_row(p, p->draft_logits, p->n_vocab, 1)))
        return err_set(e, -EPROTO, "program: its answer is buffer %u of %u values", p->logits, p->n_vocab);
    return 0;
}

/* A copy of the next n entries. */
static void *take(const uint8_t **at, uint64_t n, size_t size)
{
    void *p = malloc(n * size + 1);

    if (p)
        memcpy(p, *at, n * size);
    *at += n * size;
    return p;
}

int wire_read(const uint8_t *image, uint64_t bytes, uint64_t trunk_bytes, const struct geometry *g,
              struct program **out, struct weight_at **at_out, enum kv_type *kv, struct err *e)
{
    struct program *p = NULL;
    struct weight_at *at = NULL;
    struct wire_head h;
    const uint8_t *from = image + sizeof h;
    int rc;

    if (bytes < sizeof h)
        return err_set(e, -EPROTO, "program: %llu bytes are too few", (unsigned long long)bytes);
    memcpy(&h, image, sizeof h);
    p = calloc(1, sizeof *p);
    if (!p)
        return err_set(e, -ENOMEM, "no memory for the program");
    *p = (struct program){.n_ops = h.n_ops, .n_buffers = h.n_buffers, .n_weights = h.n_weights,
                          .n_states = h.n_states, .n_embd = h.n_embd, .n_vocab = h.n_vocab,
                          .top_k = h.top_k, .n_rot = h.n_rot, .logits = h.logits,
                          .draft_at = h.draft_at, .draft_logits = h.draft_logits, .rollback = h.rollback,
                          .token_bytes = h.token_bytes,
                          .rope_base = h.rope_base};
    if (h.magic != WIRE_MAGIC || h.n_ops > MOST || h.n_buffers > MOST || h.n_weights > MOST ||
        h.n_states > MOST || h.kv > KV_BF16 || h.bytes != wire_bytes(p) || h.bytes > bytes) {
        rc = err_set(e, -EPROTO, "program: its head makes no sense (%u operations, %llu bytes)", h.n_ops,
                     (unsigned long long)h.bytes);
        goto failed;
    }
    p->weight = take(&from, h.n_weights, sizeof *p->weight);
    at = take(&from, h.n_weights, sizeof *at);
    p->op = take(&from, h.n_ops, sizeof *p->op);
    p->buffer = take(&from, h.n_buffers, sizeof *p->buffer);
    p->state = take(&from, h.n_states, sizeof *p->state);
    if (!p->weight || !at || !p->op || !p->buffer || !p->state) {
        rc = err_set(e, -ENOMEM, "no memory for the program");
        goto failed;
    }
    rc = check_all(p, at, trunk_bytes, g, e);
    if (rc)
        goto failed;
    *out = p;
    *at_out = at;
    *kv = (enum kv_type)h.kv;
    return 0;
failed:
    program_free(p);
    free(at);
    return rc;
}
