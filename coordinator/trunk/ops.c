/* The builder of programs. Knows sizes and forms, no values: what it makes is plain data that another
 * process can execute. */
#include "coordinator/trunk/ops.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/type/type.h"

struct ops {
    const struct model *m;
    struct program *p;
    uint32_t cap_ops, cap_buffers, cap_weights, cap_states;
    uint32_t *valid;  /* by buffer: act forms that are prepared and still true */
    uint32_t *tensor; /* by trunk tensor: its weight index, or PROG_NONE */
    int no_memory;
};

static void *grow(struct ops *o, void *array, uint32_t n, uint32_t *cap, size_t size)
{
    if (n < *cap)
        return array;
    uint32_t want = *cap ? 2 * *cap : 64;
    void *bigger = realloc(array, want * size);
    if (!bigger) {
        o->no_memory = 1;
        return array;
    }
    *cap = want;
    return bigger;
}

struct ops *ops_begin(const struct model *m)
{
    struct ops *o = calloc(1, sizeof *o);

    if (!o)
        return NULL;
    o->m = m;
    o->p = calloc(1, sizeof *o->p);
    o->tensor = malloc((m->n_tensors + 1) * sizeof *o->tensor);
    if (!o->p || !o->tensor) {
        free(o->p);
        free(o->tensor);
        free(o);
        return NULL;
    }
    for (uint32_t i = 0; i < m->n_tensors; i++)
        o->tensor[i] = PROG_NONE;
    o->p->n_embd = m->n_embd;
    o->p->n_vocab = m->n_vocab;
    o->p->logits = o->p->draft_logits = PROG_NONE;
    o->p->draft_at = PROG_NONE;
    return o;
}

int ops_end(struct ops *o, struct program **out, struct err *e)
{
    struct program *p = o->p;
    int failed = o->no_memory;

    free(o->valid);
    free(o->tensor);
    free(o);
    if (failed) {
        program_free(p);
        return err_set(e, -ENOMEM, "no memory for the model's program");
    }
    assert(p->logits != PROG_NONE);
    if (p->draft_at == PROG_NONE)
        p->draft_at = p->n_ops;
    *out = p;
    return 0;
}

uint32_t ops_buffer(struct ops *o, uint32_t width, enum buf_type type, int output_rows)
{
    struct program *p = o->p;
    uint32_t cap = o->cap_buffers, *bigger;

    p->buffer = grow(o, p->buffer, p->n_buffers, &o->cap_buffers, sizeof *p->buffer);
    if (cap != o->cap_buffers) {
        bigger = realloc(o->valid, o->cap_buffers * sizeof *bigger);
        if (!bigger)
            o->no_memory = 1;
        else
            o->valid = bigger;
    }
    if (o->no_memory)
        return 0;
    p->buffer[p->n_buffers] =
        (struct prog_buffer){.width = width, .type = type, .rows = output_rows};
    o->valid[p->n_buffers] = 0;
    return p->n_buffers++;
}

static uint32_t add_state(struct ops *o, struct prog_state st)
{
    struct program *p = o->p;

    p->state = grow(o, p->state, p->n_states, &o->cap_states, sizeof *p->state);
    if (o->no_memory)
        return 0;
    st.draft = p->draft_at != PROG_NONE;
    p->state[p->n_states] = st;
    return p->n_states++;
}

uint32_t ops_state(struct ops *o, uint32_t kv_heads, uint32_t head_values)
{
    return add_state(o, (struct prog_state){.kind = STATE_KV,
                                            .k_width = kv_heads * head_values,
                                            .v_width = kv_heads * head_values,
                                            .head_values = head_values});
}

uint32_t ops_state_latent(struct ops *o, uint32_t values)
{
    return add_state(o, (struct prog_state){.kind = STATE_KV, .k_width = values, .head_values = values});
}

uint32_t ops_state_pools(struct ops *o, uint32_t values, uint32_t positions)
{
    return add_state(o, (struct prog_state){.kind = STATE_POOLS, .k_width = values, .head_values = positions});
}

uint32_t ops_state_tail(struct ops *o, uint32_t values, uint32_t rows)
{
    return add_state(o, (struct prog_state){.kind = STATE_TAIL, .k_width = values, .head_values = rows});
}

uint32_t ops_state_matrix(struct ops *o, uint32_t heads, uint32_t k_heads, uint32_t k, uint32_t v, uint32_t decay)
{
    return add_state(o, (struct prog_state){
                            .kind = STATE_MATRIX, .heads = heads, .k_heads = k_heads, .k_width = k, .v_width = v,
                            .decay = decay});
}

/* weight of a trunk tensor, once for each tensor */
static uint32_t weight_of(struct ops *o, uint32_t tensor)
{
    struct program *p = o->p;
    const struct model_tensor *t;

    if (tensor == MODEL_NONE)
        return PROG_NONE;
    if (o->tensor[tensor] != PROG_NONE)
        return o->tensor[tensor];
    p->weight = grow(o, p->weight, p->n_weights, &o->cap_weights, sizeof *p->weight);
    if (o->no_memory)
        return 0;
    t = &o->m->tensor[tensor];
    p->weight[p->n_weights] = (struct prog_weight){
        .type = t->type,
        .rows = (uint32_t)(t->dims[1] * t->dims[2] * t->dims[3]),
        .cols = (uint32_t)t->dims[0],
        .tensor = tensor,
        .row_bytes = t->row_bytes,
        .scale = PROG_NONE,
        .bias = PROG_NONE,
    };
    o->tensor[tensor] = p->n_weights;
    return p->n_weights++;
}

static struct op *append(struct ops *o, enum op_kind kind, uint32_t out)
{
    static struct op nowhere; /* written and forgotten when memory is out */
    struct program *p = o->p;
    struct op *op;

    p->op = grow(o, p->op, p->n_ops, &o->cap_ops, sizeof *p->op);
    if (o->no_memory)
        return &nowhere;
    op = &p->op[p->n_ops++];
    *op = (struct op){.kind = kind,
                      .in = {PROG_NONE, PROG_NONE},
                      .out = out,
                      .w = PROG_NONE,
                      .state = PROG_NONE};
    if (out != PROG_NONE && kind != OP_PREPARE)
        o->valid[out] = 0; /* rewritten: its prepared forms are stale */
    return op;
}

/* The operation appended last. */
static struct op *last(struct ops *o)
{
    static struct op nowhere;

    return o->no_memory || !o->p->n_ops ? &nowhere : &o->p->op[o->p->n_ops - 1];
}

void ops_name(struct ops *o, const char *fmt, ...)
{
    va_list ap;

    if (o->no_memory || !o->p->n_ops)
        return;
    va_start(ap, fmt);
    vsnprintf(o->p->op[o->p->n_ops - 1].name, PROG_NAME, fmt, ap);
    va_end(ap);
}

void ops_name_heads(struct ops *o, uint32_t heads, const char *fmt, ...)
{
    va_list ap;

    if (o->no_memory || !o->p->n_ops)
        return;
    va_start(ap, fmt);
    vsnprintf(o->p->op[o->p->n_ops - 1].name, PROG_NAME, fmt, ap);
    va_end(ap);
    o->p->op[o->p->n_ops - 1].heads = heads;
}

void ops_rollback(struct ops *o, uint32_t tokens)
{
    o->p->rollback = tokens;
}

void ops_draft(struct ops *o, uint32_t logits)
{
    struct program *p = o->p;

    p->draft_at = p->n_ops;
    p->draft_logits = logits;
    for (uint32_t i = 0; !o->no_memory && i < p->n_buffers; i++)
        o->valid[i] = 0; /* a pass of its own prepares its own vectors */
}

void ops_rope_table(struct ops *o, uint32_t n_rot, double base)
{
    o->p->n_rot = n_rot;
    o->p->rope_base = base;
}

void ops_embed(struct ops *o, uint32_t out, uint32_t tensor)
{
    uint32_t w;

    if (o->m->tensor[tensor].by_rows) {
        ops_rows(o, out, tensor, 1);
        return;
    }
    w = weight_of(o, tensor);
    append(o, OP_EMBED, out)->w = w;
}

static void prepare(struct ops *o, uint32_t in, enum act_form form, uint32_t parts)
{
    if (o->no_memory || o->valid[in] >> form & 1)
        return;
    assert(!o->p->buffer[in].forms || o->p->buffer[in].parts == parts);
    o->p->buffer[in].parts = parts;
    struct op *op = append(o, OP_PREPARE, PROG_NONE);
    op->in[0] = in;
    op->n[0] = form;
    o->valid[in] |= 1u << form;
    o->p->buffer[in].forms |= 1u << form;
}

static struct op *product(struct ops *o, enum op_kind kind, uint32_t out, const struct model_weight *w, uint32_t in,
                          uint32_t parts)
{
    static struct op nowhere;
    uint32_t index = weight_of(o, w->w), scale = weight_of(o, w->scale), bias = weight_of(o, w->bias);
    const struct type_info *t;
    struct op *op;

    if (o->no_memory)
        return &nowhere;
    o->p->weight[index].scale = scale;
    o->p->weight[index].bias = bias;
    t = type_info(o->p->weight[index].type);
    prepare(o, in, t->act, parts);
    op = append(o, kind, out);
    op->in[0] = in;
    op->w = index;
    op->n[0] = t->act;
    return op;
}

void ops_matmul(struct ops *o, uint32_t out, const struct model_weight *w, uint32_t in)
{
    product(o, OP_MATMUL, out, w, in, 0);
}

void ops_matmul_parts(struct ops *o, uint32_t out, const struct model_weight *w, uint32_t in, uint32_t parts)
{
    product(o, OP_MATMUL_PARTS, out, w, in, parts)->n[1] = parts;
}

void ops_rms_norm(struct ops *o, uint32_t out, uint32_t in, uint32_t tensor, uint32_t width,
                  uint32_t pieces, float eps)
{
    uint32_t w = weight_of(o, tensor);
    struct op *op = append(o, OP_RMS_NORM, out);

    op->in[0] = in;
    op->w = w;
    op->n[0] = width;
    op->n[1] = pieces;
    op->f[0] = eps;
}

void ops_rms_norm_at(struct ops *o, uint32_t out, uint32_t first, uint32_t in, uint32_t tensor, uint32_t width,
                     float eps)
{
    uint32_t w = weight_of(o, tensor);
    struct op *op = append(o, OP_RMS_NORM, out);

    op->in[0] = in;
    op->w = w;
    op->n[0] = width;
    op->n[1] = 1;
    op->n[3] = first;
    op->f[0] = eps;
}

void ops_rms_norm_each(struct ops *o, uint32_t out, uint32_t in, uint32_t tensor, uint32_t width, uint32_t pieces,
                       float eps)
{
    ops_rms_norm(o, out, in, tensor, width, pieces, eps);
    last(o)->n[2] = 1;
}

void ops_l2_norm(struct ops *o, uint32_t out, uint32_t in, uint32_t width, uint32_t pieces, float eps, float scale)
{
    struct op *op = append(o, OP_L2_NORM, out);

    op->in[0] = in;
    op->n[0] = width;
    op->n[1] = pieces;
    op->f[0] = eps;
    op->f[1] = scale;
}

void ops_layer_norm(struct ops *o, uint32_t out, uint32_t in, uint32_t tensor, uint32_t bias, float eps)
{
    uint32_t w = weight_of(o, tensor), b = weight_of(o, bias);
    struct op *op = append(o, OP_LAYER_NORM, out);

    op->in[0] = in;
    op->w = w;
    op->n[0] = b;
    op->f[0] = eps;
}

void ops_gated_norm(struct ops *o, uint32_t out, uint32_t in, uint32_t gate, uint32_t tensor, uint32_t width,
                    uint32_t pieces, float eps)
{
    uint32_t w = weight_of(o, tensor);
    struct op *op = append(o, OP_GATED_NORM, out);

    op->in[0] = in;
    op->in[1] = gate;
    op->w = w;
    op->n[0] = width;
    op->n[1] = pieces;
    op->f[0] = eps;
}

void ops_func(struct ops *o, uint32_t out, uint32_t in, enum op_func func)
{
    struct op *op = append(o, OP_FUNC, out);

    op->in[0] = in;
    op->n[0] = func;
}

void ops_scale(struct ops *o, uint32_t buf, float scale)
{
    append(o, OP_SCALE, buf)->f[0] = scale;
}

void ops_divide(struct ops *o, uint32_t buf, float by)
{
    ops_scale(o, buf, by);
    last(o)->n[0] = 1;
}

void ops_swiglu(struct ops *o, uint32_t out, uint32_t gate, uint32_t up, float limit)
{
    struct op *op = append(o, OP_SWIGLU, out);

    op->in[0] = gate;
    op->in[1] = up;
    op->f[0] = limit;
}

void ops_repeat(struct ops *o, uint32_t out, uint32_t in, uint32_t copies)
{
    struct op *op = append(o, OP_REPEAT, out);

    op->in[0] = in;
    op->n[0] = copies;
}

void ops_rope(struct ops *o, uint32_t buf, uint32_t heads, uint32_t head_values, uint32_t n_rot, uint32_t ahead)
{
    struct op *op = append(o, OP_ROPE, buf);

    op->n[0] = heads;
    op->n[1] = head_values;
    op->n[2] = n_rot;
    op->n[3] = ahead;
    op->heads = heads;
}

void ops_slice(struct ops *o, uint32_t out, uint32_t in, uint32_t groups, uint32_t values, uint32_t first,
               uint32_t stride)
{
    struct op *op = append(o, OP_SLICE, out);

    op->in[0] = in;
    op->n[0] = groups;
    op->n[1] = values;
    op->n[2] = first;
    op->n[3] = stride;
}

void ops_mul(struct ops *o, uint32_t acc, uint32_t in)
{
    append(o, OP_MUL, acc)->in[0] = in;
}

void ops_add_times(struct ops *o, uint32_t acc, uint32_t in, uint32_t factor)
{
    ops_add_times_each(o, acc, in, factor, 1);
}

void ops_add_times_each(struct ops *o, uint32_t acc, uint32_t in, uint32_t factors, uint32_t vectors)
{
    struct op *op = append(o, OP_ADD_TIMES, acc);

    op->in[0] = in;
    op->in[1] = factors;
    op->n[0] = vectors;
}

void ops_kv_append(struct ops *o, uint32_t state, uint32_t k, uint32_t v)
{
    struct op *op = append(o, OP_KV_APPEND, PROG_NONE);

    op->in[0] = k;
    op->in[1] = v;
    op->state = state;
}

void ops_attention(struct ops *o, uint32_t out, uint32_t q, uint32_t list, uint32_t state, uint32_t heads,
                   uint32_t kv_heads, uint32_t head_values, float scale)
{
    struct op *op = append(o, OP_ATTENTION, out);

    op->in[0] = q;
    op->in[1] = list;
    op->heads = heads;
    op->state = state;
    op->n[0] = heads;
    op->n[1] = kv_heads;
    op->n[2] = head_values;
    op->f[0] = scale;
}

void ops_add(struct ops *o, uint32_t acc, uint32_t in)
{
    append(o, OP_ADD, acc)->in[0] = in;
}

void ops_add_two(struct ops *o, uint32_t acc, uint32_t a, uint32_t b)
{
    struct op *op = append(o, OP_ADD, acc);

    op->in[0] = a;
    op->in[1] = b;
}

void ops_router(struct ops *o, uint32_t probs, uint32_t ids, uint32_t weights, uint32_t logits, uint32_t bias,
                uint32_t n_experts, uint32_t used, uint32_t flags, float floor, float scale)
{
    uint32_t w = weight_of(o, bias);
    struct op *op = append(o, OP_ROUTER, probs);

    op->in[0] = logits;
    op->w = w;
    op->n[0] = n_experts;
    op->n[1] = used;
    op->n[2] = flags;
    op->n[3] = ids;
    op->n[4] = weights;
    op->f[0] = floor;
    op->f[1] = scale;
    if (o->p->top_k < used)
        o->p->top_k = used;
}

void ops_moe_call(struct ops *o, uint32_t vectors, uint32_t ids, uint32_t layer, uint32_t used)
{
    struct op *op = append(o, OP_MOE_CALL, PROG_NONE);

    op->in[0] = vectors;
    op->in[1] = ids;
    op->n[0] = layer;
    op->n[1] = used;
}

void ops_moe_sum(struct ops *o, uint32_t out, uint32_t weights)
{
    append(o, OP_MOE_SUM, out)->in[1] = weights;
}

void ops_pick(struct ops *o, uint32_t out, uint32_t in)
{
    append(o, OP_PICK, out)->in[0] = in;
}

void ops_logits(struct ops *o, uint32_t buf)
{
    o->p->logits = buf;
}

/* ---- recurrent layers ---- */

void ops_conv(struct ops *o, uint32_t out, uint32_t in, uint32_t taps, uint32_t n_taps, uint32_t gap, uint32_t tail)
{
    uint32_t w = weight_of(o, taps);
    struct op *op = append(o, OP_CONV, out);

    op->in[0] = in;
    op->w = w;
    op->state = tail;
    op->n[0] = n_taps;
    op->n[1] = gap;
}

void ops_decay(struct ops *o, uint32_t out, uint32_t in, uint32_t a, uint32_t dt, uint32_t heads, int bounded,
               float bound)
{
    uint32_t w = weight_of(o, a), second = weight_of(o, dt);
    struct op *op = append(o, OP_DECAY, out);

    op->in[0] = in;
    op->w = w;
    op->n[0] = heads;
    op->n[1] = (uint32_t)bounded;
    op->n[2] = second;
    op->f[0] = bound;
}

void ops_delta(struct ops *o, uint32_t out, uint32_t q, uint32_t k, uint32_t v, uint32_t decay, uint32_t beta,
               uint32_t matrix)
{
    struct op *op = append(o, OP_DELTA, out);

    op->in[0] = q;
    op->in[1] = k;
    op->n[0] = v;
    op->n[1] = decay;
    op->n[2] = beta;
    op->state = matrix;
}

/* ---- selected attention ---- */

void ops_pool(struct ops *o, uint32_t keys, uint32_t gates, uint32_t bias, uint32_t pools, uint32_t tail)
{
    uint32_t w = weight_of(o, bias);
    struct op *op = append(o, OP_POOL, PROG_NONE);

    op->in[0] = keys;
    op->in[1] = gates;
    op->w = w;
    op->state = pools;
    op->n[0] = tail;
}

void ops_pool_mean(struct ops *o, uint32_t keys, uint32_t norm, float eps, uint32_t n_rot, uint32_t pools,
                   uint32_t tail)
{
    ops_pool(o, keys, PROG_NONE, norm, pools, tail);
    last(o)->n[1] = n_rot;
    last(o)->f[0] = eps;
}

void ops_select(struct ops *o, uint32_t list, uint32_t heads_buf, uint32_t weights, uint32_t pools, uint32_t heads,
                uint32_t most, float scale)
{
    struct op *op = append(o, OP_SELECT, list);

    op->in[0] = heads_buf;
    op->in[1] = weights;
    op->state = pools;
    op->n[0] = heads;
    op->n[1] = most;
    op->f[0] = scale;
}

/* ---- hyper-connections ---- */

void ops_hyper_mix(struct ops *o, uint32_t out, uint32_t in, uint32_t scale, uint32_t base, uint32_t streams,
                   uint32_t iterations, float eps)
{
    uint32_t w = weight_of(o, scale), second = weight_of(o, base);
    struct op *op = append(o, OP_HYPER_MIX, out);

    op->in[0] = in;
    op->w = w;
    op->n[0] = streams;
    op->n[1] = iterations;
    op->n[2] = second;
    op->f[0] = eps;
}

static void streams_op(struct ops *o, enum op_kind kind, uint32_t out, uint32_t in, uint32_t mix, uint32_t streams)
{
    struct op *op = append(o, kind, out);

    op->in[0] = in;
    op->in[1] = mix;
    op->n[0] = streams;
}

void ops_hyper_collapse(struct ops *o, uint32_t out, uint32_t streams_buf, uint32_t mix, uint32_t streams)
{
    streams_op(o, OP_HYPER_COLLAPSE, out, streams_buf, mix, streams);
}

void ops_hyper_expand(struct ops *o, uint32_t streams_buf, uint32_t y, uint32_t mix, uint32_t streams)
{
    streams_op(o, OP_HYPER_EXPAND, streams_buf, y, mix, streams);
}

void ops_hyper_mean(struct ops *o, uint32_t out, uint32_t streams_buf, uint32_t streams)
{
    streams_op(o, OP_HYPER_MEAN, out, streams_buf, PROG_NONE, streams);
}

void ops_carry(struct ops *o, uint32_t out, uint32_t in)
{
    append(o, OP_CARRY, out)->in[0] = in;
}

void ops_branch_mean(struct ops *o, uint32_t out, uint32_t gates, uint32_t streams_buf, uint32_t streams)
{
    streams_op(o, OP_BRANCH_MEAN, out, gates, streams_buf, streams);
}

void ops_branch_gate(struct ops *o, uint32_t out, uint32_t keys, uint32_t streams_buf, uint32_t value, uint32_t streams,
                     float scale)
{
    streams_op(o, OP_BRANCH_GATE, out, keys, streams_buf, streams);
    last(o)->n[1] = value;
    last(o)->f[0] = scale;
}

/* ---- tables by rows ---- */

/* The program's table of a tensor, once for each. */
static const struct prog_table *table_of(struct ops *o, uint32_t tensor, uint32_t rows)
{
    struct program *p = o->p;
    struct prog_table *t;

    for (uint32_t i = 0; i < p->n_tables; i++)
        if (p->table[i].tensor == tensor && p->table[i].rows == rows)
            return &p->table[i];
    assert(p->n_tables < PROG_TABLES);
    t = &p->table[p->n_tables++];
    *t = (struct prog_table){.tensor = tensor, .rows = rows, .first = p->token_bytes,
                             .row_bytes = (uint32_t)o->m->tensor[tensor].row_bytes};
    p->token_bytes += (rows * t->row_bytes + 7) & ~7u; /* whole words, for they cross processes */
    return t;
}

void ops_rows(struct ops *o, uint32_t out, uint32_t tensor, uint32_t rows)
{
    const struct prog_table *t = table_of(o, tensor, rows);
    struct op *op = append(o, OP_ROWS, out);

    op->n[0] = t->first;
    op->n[1] = rows;
    op->n[2] = (uint32_t)o->m->tensor[tensor].dims[0];
    op->n[3] = o->m->tensor[tensor].type;
}
