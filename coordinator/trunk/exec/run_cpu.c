/* The CPU executor. One plan of a step says for each operation whether the whole team works on it or
 * the leader alone, and where threads must meet; then every thread walks the list. How work is cut
 * never reaches a value: an operation's result is defined by row, by token or by head. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "coordinator/trunk/exec/run.h"
#include "kernels/rope/rope.h"

#define ROPE_BLOCK 256 /* rotations are made for this many positions at a time */
/* Multiply-adds below which a second thread costs more than it saves (a meeting is about half a
 * microsecond). Changes who computes, never what. */
#define WORTH_SHARING 16384

enum { PLAN_TEAM = 1, PLAN_MEET = 2 };

uint64_t exec_kv_bytes(const struct program *p, enum kv_type kv, uint64_t n_ctx)
{
    return states_bytes(p, kv, n_ctx);
}

static uint32_t parts_of(const struct prog_buffer *b)
{
    return b->parts ? b->parts : 1;
}

/* Positions of the smallest pool; 0: no pools. */
static uint32_t pool_of(const struct program *p)
{
    uint32_t least = 0;

    for (uint32_t i = 0; i < p->n_states; i++)
        if (p->state[i].kind == STATE_POOLS && (!least || p->state[i].head_values < least))
            least = p->state[i].head_values;
    return least;
}

uint64_t exec_sequence_bytes(const struct program *p)
{
    return states_fixed_bytes(p);
}

uint64_t exec_position_bytes(const struct program *p, enum kv_type kv)
{
    uint64_t whole = pool_of(p) ? pool_of(p) : 1; /* positions whose rows are shared with no others */

    return (states_bytes(p, kv, whole) - states_fixed_bytes(p) + whole - 1) / whole;
}

struct exec_needs exec_needs(const struct program *p, enum kv_type kv)
{
    struct exec_needs n = {.sequence = states_fixed_bytes(p), .saved = states_saved_bytes(p), .position = p->n_rot / 2 * 2 * sizeof(float)};

    n.kept = exec_position_bytes(p, kv);
    if (pool_of(p))
        n.position += SELECT_TOKENS * sizeof(float); /* scores */
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        const struct prog_buffer *b = &p->buffer[i];
        uint64_t one = (uint64_t)b->width * 4;
        for (int f = 0; f < N_FORMS; f++)
            if (f != ACT_F32 && (b->forms >> f & 1))
                one += parts_of(b) * act_stride(f, b->width / parts_of(b));
        *(b->rows ? &n.row : &n.token) += one;
    }
    return n;
}

static uint32_t rows_of(const struct exec *x, uint32_t buf)
{
    return x->c.prog->buffer[buf].rows ? x->c.max_out : x->c.max_tokens;
}

static void *zeroed(size_t bytes)
{
    void *p = NULL;

    if (posix_memalign(&p, 64, bytes ? bytes : 64))
        return NULL;
    memset(p, 0, bytes);
    return p;
}

/* Large and touched as the context grows: anonymous pages, not a memset. */
static uint8_t *pages(size_t bytes)
{
    void *p = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

int buffer_open(const struct prog_buffer *b, uint32_t rows, struct buffer *out)
{
    out->data = zeroed((size_t)rows * b->width * 4);
    if (!out->data)
        return -1;
    for (int f = 0; f < N_FORMS; f++) {
        if (!(b->forms >> f & 1) || f == ACT_F32)
            continue;
        out->part_stride[f] = act_stride(f, b->width / parts_of(b));
        out->form_stride[f] = parts_of(b) * out->part_stride[f];
        out->form[f] = zeroed(rows * out->form_stride[f]);
        if (!out->form[f])
            return -1;
    }
    return 0;
}

void buffer_close(struct buffer *b)
{
    free(b->data);
    for (int f = 0; f < N_FORMS; f++)
        free(b->form[f]);
}

int exec_open(const struct exec_config *c, struct exec **out, struct err *e)
{
    const struct program *p = c->prog;
    struct exec *x = calloc(1, sizeof *x);
    size_t rope = ((size_t)c->n_ctx + 1) * (p->n_rot / 2) * sizeof(float);

    if (!x)
        return err_set(e, -ENOMEM, "no memory for the trunk");
    x->c = *c;
    x->buf = calloc(p->n_buffers + 1, sizeof *x->buf);
    x->states = states_open(p, c->kv, c->n_ctx, c->n_seqs, c->n_saved);
    x->n_pools = pool_of(p) ? c->n_ctx / pool_of(p) : 0;
    x->scores = (float *)pages(SELECT_TOKENS * x->n_pools * sizeof(float));
    x->plan = calloc(p->n_ops + 1, 1);
    x->cos = (float *)pages(rope);
    x->sin = (float *)pages(rope);
    if (!x->buf || !x->states || !x->plan || !x->cos || !x->sin || !x->scores)
        goto no_memory;
    for (uint32_t i = 0; i < p->n_buffers; i++)
        if (buffer_open(&p->buffer[i], rows_of(x, i), &x->buf[i]))
            goto no_memory;
    if (c->moe && ahead_open(x, &x->guess))
        goto no_memory;
    *out = x;
    return 0;
no_memory:
    exec_close(x);
    return err_set(e, -ENOMEM, "no memory for the trunk's buffers and a context of %u tokens", c->n_ctx);
}

void exec_close(struct exec *x)
{
    const struct program *p;

    if (!x)
        return;
    p = x->c.prog;
    size_t rope = ((size_t)x->c.n_ctx + 1) * (p->n_rot / 2) * sizeof(float);
    ahead_close(x->guess);
    for (uint32_t i = 0; x->buf && i < p->n_buffers; i++)
        buffer_close(&x->buf[i]);
    states_close(x->states);
    if (x->scores)
        munmap(x->scores, x->n_pools ? SELECT_TOKENS * x->n_pools * sizeof(float) : 1);
    if (x->cos)
        munmap(x->cos, rope ? rope : 1);
    if (x->sin)
        munmap(x->sin, rope ? rope : 1);
    free(x->buf);
    free(x->plan);
    free(x->scratch);
    free(x->keep);
    free(x->dump_scores);
    free(x->dump_chosen);
    free(x);
}

void exec_dump(struct exec *x, exec_dump_fn *fn, void *arg, uint32_t positions)
{
    x->dump = fn;
    x->dump_arg = arg;
    x->dump_positions = positions;
    memset(x->planned, 0, sizeof x->planned); /* plans are made anew */
}

void exec_save(struct exec *x, uint32_t seq, uint32_t pos, uint32_t slot)
{
    states_save(x->states, seq, pos, slot);
}
uint32_t exec_restore(struct exec *x, uint32_t slot)
{
    return states_restore(x->states, slot);
}

uint64_t exec_steps(const struct exec *x)
{
    return x->n_steps;
}

/* ---- one operation ---- */

static void run_call(struct exec *x, const struct op *op, struct part p)
{
    (void)p; /* the leader's */
    moe_keep_rows(x->c.moe, x->dump ? x->keep : NULL);
    moe_begin(x->c.moe, op->n[0], op->n[1], x->buf[op->in[0]].data, x->buf[op->in[1]].data, x->s->n_tokens);
    if (x->guess) /* while the workers compute this layer's experts */
        ahead_guess(x, x->guess, (uint32_t)(op - x->c.prog->op), x->c.moe);
}

static void run_sum(struct exec *x, const struct op *op, struct part p)
{
    moe_finish(x->c.moe, x->team, (int)p.thread, (int)p.n, p.team, x->buf[op->in[1]].data, x->buf[op->out].data);
}

static void (*const run_of[OP_KINDS])(struct exec *x, const struct op *op, struct part p) = {
    [OP_EMBED] = run_embed,
    [OP_PREPARE] = run_prepare,
    [OP_MATMUL] = run_matmul,
    [OP_RMS_NORM] = run_rms_norm,
    [OP_ROPE] = run_rope,
    [OP_KV_APPEND] = run_kv_append,
    [OP_ATTENTION] = run_attention,
    [OP_ADD] = run_add,
    [OP_ROUTER] = run_router,
    [OP_MOE_CALL] = run_call,
    [OP_MOE_SUM] = run_sum,
    [OP_PICK] = run_pick,
    [OP_MATMUL_PARTS] = run_matmul_parts,
    [OP_REPEAT] = run_repeat,
    [OP_L2_NORM] = run_l2_norm,
    [OP_LAYER_NORM] = run_layer_norm,
    [OP_GATED_NORM] = run_gated_norm,
    [OP_FUNC] = run_func,
    [OP_SCALE] = run_scale,
    [OP_SWIGLU] = run_swiglu,
    [OP_CONV] = run_conv,
    [OP_DECAY] = run_decay,
    [OP_DELTA] = run_delta,
    [OP_POOL] = run_pool,
    [OP_SELECT] = run_select,
    [OP_HYPER_MIX] = run_hyper_mix,
    [OP_HYPER_COLLAPSE] = run_hyper_collapse,
    [OP_HYPER_EXPAND] = run_hyper_expand,
    [OP_HYPER_MEAN] = run_hyper_mean,
    [OP_SLICE] = run_slice,
    [OP_MUL] = run_mul,
    [OP_ADD_TIMES] = run_add_times,
    [OP_CARRY] = run_carry,
    [OP_ROWS] = run_rows,
    [OP_BRANCH_MEAN] = run_branch_mean,
    [OP_BRANCH_GATE] = run_branch_gate,
};

/* ---- the plan ---- */

/* Keys that an attention looks at, at most. */
static uint64_t keys_seen(const struct exec *x, const struct op *op)
{
    uint64_t list = op->in[1] == PROG_NONE ? UINT64_MAX : x->c.prog->buffer[op->in[1]].width;

    return list < x->plan_keys ? list : x->plan_keys;
}

/* Multiply-adds of an operation in this step, roughly; 0: the leader's alone. */
static uint64_t cost(const struct exec *x, const struct op *op)
{
    const struct program *p = x->c.prog;
    uint64_t t = x->s->n_tokens, width = op->out == PROG_NONE ? 0 : p->buffer[op->out].width;

    switch ((enum op_kind)op->kind) {
    case OP_MATMUL:
    case OP_MATMUL_PARTS:
        return (uint64_t)p->weight[op->w].rows * p->weight[op->w].cols * live_rows(x, op->in[0]);
    case OP_ATTENTION:
        return 2ull * op->n[0] * op->n[2] * keys_seen(x, op) * t;
    case OP_SELECT:
        return (uint64_t)op->n[0] * p->state[op->state].k_width * x->plan_keys / p->state[op->state].head_values * t;
    case OP_DELTA:
        return 3ull * p->state[op->state].heads * p->state[op->state].k_width * p->state[op->state].v_width * t;
    case OP_CONV:
        return op->n[0] * width * t;
    case OP_PREPARE:
        return op->n[0] == ACT_F32 ||
                       (live_rows(x, op->in[0]) < 2 && parts_of(&p->buffer[op->in[0]]) < 2)
                   ? 0
                   : 4ull * p->buffer[op->in[0]].width * live_rows(x, op->in[0]);
    case OP_MOE_SUM:
        return t < 2 ? 0 : t * width * p->top_k;
    case OP_FUNC:
    case OP_SCALE:
    case OP_MUL:
    case OP_SWIGLU:
        return 8 * width * live_rows(x, op->out); /* cut anywhere */
    case OP_KV_APPEND:
        return t < 2 ? 0 : 8ull * p->state[op->state].k_width * t;
    case OP_POOL:
        return t < 2 ? 0 : 4ull * p->state[op->state].k_width * t;
    case OP_HYPER_MIX:
        return t < 2 ? 0 : op->n[0] * op->n[0] * op->n[1] * 8ull * t;
    case OP_HYPER_EXPAND:
        return t < 2 ? 0 : op->n[0] * width * t;
    case OP_EMBED:
    case OP_RMS_NORM:
    case OP_L2_NORM:
    case OP_LAYER_NORM:
    case OP_GATED_NORM:
    case OP_DECAY:
    case OP_ROPE:
    case OP_ADD:
    case OP_ADD_TIMES:
    case OP_SLICE:
    case OP_ROUTER:
    case OP_PICK:
    case OP_REPEAT:
    case OP_HYPER_COLLAPSE:
    case OP_HYPER_MEAN:
    case OP_BRANCH_MEAN:
    case OP_BRANCH_GATE:
        return live_rows(x, op->out) < 2 ? 0 : 4 * width * live_rows(x, op->out);
    case OP_CARRY:
    case OP_ROWS:
    case OP_MOE_CALL:
    case OP_KINDS:
        break;
    }
    return 0;
}

/* What operations touch: a bit for each buffer and each state (folded: a false alarm costs a meeting, never a
 * race). */
#define SET_WORDS 4
struct set {
    uint64_t w[SET_WORDS];
};
static void put(struct set *s, uint32_t kind, uint32_t i)
{
    uint32_t bit = (2 * i + kind) % (64 * SET_WORDS);

    if (i != PROG_NONE)
        s->w[bit / 64] |= 1ull << (bit % 64);
}
static void join(struct set *to, const struct set *s)
{
    for (int i = 0; i < SET_WORDS; i++)
        to->w[i] |= s->w[i];
}
static int meets(const struct set *a, const struct set *b)
{
    uint64_t both = 0;

    for (int i = 0; i < SET_WORDS; i++)
        both |= a->w[i] & b->w[i];
    return both != 0;
}

static void touches(const struct op *op, struct set *reads, struct set *writes)
{
    struct op_uses u = program_uses(op);

    *reads = *writes = (struct set){0};
    for (int i = 0; i < USES_READ; i++)
        put(reads, 0, u.read[i]);
    for (int i = 0; i < USES_WRITTEN; i++)
        put(writes, 0, u.written[i]);
    for (int i = 0; i < USES_STATES; i++)
        put(u.changes_state ? writes : reads, 1, u.state[i]);
}

/* What the team, and what the leader alone, has read and written since the last meeting. */
struct since {
    struct set team_r, team_w, lead_r, lead_w;
};

/* A meeting stands before an operation that would read what another thread has written since the last
 * one, or write what another has read or written. */
static int must_meet(const struct since *d, int team, const struct set *r, const struct set *w)
{
    if (meets(r, &d->team_w) || meets(w, &d->team_w) || meets(w, &d->team_r))
        return 1;
    return team && (meets(r, &d->lead_w) || meets(w, &d->lead_w) || meets(w, &d->lead_r));
}

static void make_plan(struct exec *x)
{
    const struct program *p = x->c.prog;
    struct since d = {0};

    for (uint32_t i = x->begin; i < x->end; i++) {
        const struct op *op = &p->op[i];
        int team = team_size(x->team) > 1 && cost(x, op) >= WORTH_SHARING, meet;
        struct set r, w;
        touches(op, &r, &w);
        meet = must_meet(&d, team, &r, &w);
        if (op->kind == OP_MOE_SUM || op->kind == OP_MOE_CALL)
            meet |= team; /* the call in work belongs to the leader */
        if (x->dump)
            meet = 1;
        if (meet)
            d = (struct since){0};
        join(team ? &d.team_w : &d.lead_w, &w);
        join(team ? &d.team_r : &d.lead_r, &r);
        x->plan[i] = (uint8_t)((team ? PLAN_TEAM : 0) | (meet && team_size(x->team) > 1 ? PLAN_MEET : 0));
    }
}

/* ---- a step ---- */

static void run_step(void *arg, int thread, int n_threads)
{
    struct exec *x = arg;
    const struct program *p = x->c.prog;
    const struct part alone = {0, 1, 0}, mine = {(uint32_t)thread, (uint32_t)n_threads, 1};

    for (uint32_t i = x->begin; i < x->end; i++) {
        const struct op *op = &p->op[i];
        if (x->plan[i] & PLAN_MEET)
            team_meet(x->team);
        if (x->plan[i] & PLAN_TEAM)
            run_of[op->kind](x, op, mine);
        else if (thread == 0)
            run_of[op->kind](x, op, alone);
        if (x->dump && n_threads > 1)
            team_meet(x->team);
        if (x->dump && thread == 0)
            run_dump(x, op);
    }
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* scratch grows with the team, which the first step brings */
static void ready_scratch(struct exec *x)
{
    const struct program *p = x->c.prog;
    size_t n = larger(attention_scratch_bytes(p), delta_scratch_bytes(p));
    int threads = x->team ? team_size(x->team) : 1;

    if (x->n_scratch >= threads)
        return;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        if (p->op[i].kind == OP_ROUTER)
            n = larger(n, p->op[i].n[0] * sizeof(float));
        if (p->op[i].kind == OP_SELECT)
            n = larger(n, p->op[i].n[1] * sizeof(uint32_t));
    }
    free(x->scratch);
    x->scratch_bytes = (n + 63) & ~(size_t)63;
    x->n_scratch = threads;
    x->scratch = zeroed(x->scratch_bytes * x->n_scratch);
    if (!x->scratch)
        abort(); /* some hundred kilobytes a thread */
}

static void ready_rope(struct exec *x, uint32_t last)
{
    uint32_t half = x->c.prog->n_rot / 2;

    while (x->rope_ready <= last && x->rope_ready <= x->c.n_ctx) { /* rule 23: once a position */
        uint32_t end = x->rope_ready + ROPE_BLOCK;
        for (; x->rope_ready < end && x->rope_ready <= x->c.n_ctx; x->rope_ready++)
            rope_row(x->c.prog->rope_base, x->c.prog->n_rot, x->rope_ready,
                     x->cos + (size_t)x->rope_ready * half, x->sin + (size_t)x->rope_ready * half);
    }
}

static void ready_plan(struct exec *x, uint32_t last)
{
    struct plan_of *is = &x->planned[x->s->pass != STEP_TRUNK];
    struct plan_of want = {x->s->n_tokens, x->s->n_out, (last + 256) / 256 * 256}; /* not anew for every token */

    if (!memcmp(is, &want, sizeof want))
        return;
    *is = want;
    x->plan_keys = want.keys;
    make_plan(x);
}

static void ready_dump(struct exec *x)
{
    const struct program *p = x->c.prog;
    uint32_t most = 1;

    for (uint32_t i = 0; i < p->n_ops; i++)
        if (p->op[i].kind == OP_SELECT && most < p->op[i].n[1])
            most = p->op[i].n[1];
    free(x->keep);
    x->keep = malloc((size_t)x->s->n_tokens * p->top_k * p->n_embd * sizeof(float) + 1);
    if (!x->dump_scores)
        x->dump_scores = malloc((size_t)x->c.max_tokens * x->n_pools * sizeof(float) + 1);
    if (!x->dump_chosen)
        x->dump_chosen = malloc((size_t)x->c.max_tokens * most * sizeof(int32_t));
    if (!x->keep || !x->dump_scores || !x->dump_chosen)
        abort(); /* for a prompt of a test */
}

/* Everything that a step's operations find there. */
static void begin(struct exec *x, struct team *team, const struct step *s)
{
    const struct program *p = x->c.prog;
    int draft = s->pass != STEP_TRUNK;
    uint32_t last = 0;

    x->s = s;
    x->rows = (struct step_rows){0};
    x->team = team;
    x->begin = draft ? p->draft_at : 0;
    x->end = draft ? p->n_ops : p->draft_at;
    x->carry = x->last_draft;
    if (draft)
        x->last_draft = s->n_out ? s->n_out - 1 : 0;
    ready_scratch(x);
    for (uint32_t t = 0; t < s->n_tokens; t++)
        if (last < s->token[t].pos)
            last = s->token[t].pos;
    states_begin(x->states, s);
    ready_rope(x, last + 1); /* a NextN block may look one position ahead */
    if (team)
        ready_plan(x, last);
}

const float *exec_step(struct exec *x, struct team *team, const struct step *s)
{
    const struct program *p = x->c.prog;

    begin(x, team, s);
    if (x->dump)
        ready_dump(x);
    if (x->c.moe && s->pass == STEP_TRUNK)
        moe_step(x->c.moe, s->n_tokens);
    team_do(team, run_step, x);
    x->n_steps++;
    return x->buf[s->pass == STEP_TRUNK ? p->logits : p->draft_logits].data;
}

void exec_begin(struct exec *x, const struct step *s)
{
    begin(x, NULL, s);
}
void exec_op(struct exec *x, const struct op *op)
{
    run_of[op->kind](x, op, (struct part){0, 1, 0});
}
void *exec_row(const struct exec *x, uint32_t buffer, uint32_t row)
{
    return row_f32(x, buffer, row);
}
