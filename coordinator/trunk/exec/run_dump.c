/* What operations have made, by name, for `eval --dump`. Some make more than one thing: "L3.hc_attn" is
 * L3.hc_attn_pre, _post and _comb, "L3.idx" is L3.idx_scores, L3.idx_sel and L3.attended, "L3.index" (without
 * head weights) L3.index_scores and L3.visible. */
#include "coordinator/trunk/exec/run.h"

#define LONGEST (PROG_NAME + 16)

/* The name with another last word: "L0.router" and "experts" are "L0.experts". In a chained draft the NextN
 * block's "N." is "N.step2.". */
static const char *named(const struct exec *x, const struct op *op, const char *word, char out[LONGEST])
{
    const char *dot = strchr(op->name, '.');
    int stem = dot ? (int)(dot - op->name) + 1 : 0;

    snprintf(out, LONGEST, "%.*s%s%s", stem, op->name, x->s->pass == STEP_CHAIN ? "step2." : "",
             word ? word : op->name + stem);
    return out;
}

static void tell(struct exec *x, const struct op *op, const char *word, int integer, const void *rows, size_t n,
                 size_t a, size_t b)
{
    const size_t dims[4] = {n, a, b, 0};
    char name[LONGEST];

    x->dump(x->dump_arg, named(x, op, word, name), integer, 0, rows, dims);
}

static void tell_whole(struct exec *x, const struct op *op, const char *word, const float *rows, const size_t dims[4])
{
    char name[LONGEST];

    x->dump(x->dump_arg, named(x, op, word, name), 0, 1, rows, dims);
}

static void dump_router(struct exec *x, const struct op *op)
{
    size_t n = x->s->n_tokens;

    tell(x, op, "router_probs", 0, x->buf[op->out].data, n, op->n[0], 0);
    tell(x, op, "experts", 1, x->buf[op->n[3]].data, n, op->n[1], 0);
    tell(x, op, "weights", 0, x->buf[op->n[4]].data, n, op->n[1], 0);
}

/* Parts of rows: values [at, at + a * b) of each. */
static void tell_part(struct exec *x, const struct op *op, const char *end, size_t at, size_t a, size_t b)
{
    char word[LONGEST];
    const char *dot = strchr(op->name, '.');

    snprintf(word, sizeof word, "%s_%s", dot ? dot + 1 : op->name, end);
    for (uint32_t t = 0; t < x->s->n_tokens; t++)
        tell(x, op, word, 0, row_f32(x, op->out, t) + at, 1, a, b);
}

static void dump_mix(struct exec *x, const struct op *op)
{
    size_t n = op->n[0];

    tell_part(x, op, "pre", 0, n, 0);
    tell_part(x, op, "post", n, n, 0);
    tell_part(x, op, "comb", 2 * n, n, n);
}

/* The matrices behind the last token, of the first sequence. */
static void dump_matrix(struct exec *x, const struct op *op)
{
    const struct prog_state *st = &x->c.prog->state[op->state];
    uint32_t n;
    const struct run *r = states_runs(x->states, &n);

    tell_whole(x, op, strstr(op->name, "kda_") ? "kda_state" : "state", states_matrix(x->states, op->state, r->seq, r->from ^ 1, 0),
               (const size_t[4]){1, st->heads, st->k_width, st->v_width});
}

static void dump_pools(struct exec *x, const struct op *op)
{
    const struct prog_state *st = &x->c.prog->state[op->state];
    uint32_t n;
    const struct run *r = states_runs(x->states, &n);

    tell_whole(x, op, "idx_pool", states_pools(x->states, op->state, r->seq),
               (const size_t[4]){(r->pos + r->n) / st->head_values, st->k_width, 0, 0});
}

/* scores by pool; 1 for each position that a token attends to */
static void dump_list(struct exec *x, const struct op *op)
{
    size_t n_ctx = x->dump_positions, pools = n_ctx / x->c.prog->state[op->state].head_values;
    int32_t *seen = malloc((n_ctx + 1) * sizeof *seen);
    int plain = op->in[1] == PROG_NONE;

    for (uint32_t t = 0; t < x->s->n_tokens; t++)
        tell(x, op, plain ? "index_scores" : "idx_scores", 0, x->dump_scores + (size_t)t * x->n_pools, 1, pools, 0);
    if (!plain)
        tell(x, op, "idx_sel", 1, x->dump_chosen, x->s->n_tokens, op->n[1], 0);
    for (uint32_t t = 0; seen && t < x->s->n_tokens; t++) {
        const uint32_t *list = (const uint32_t *)row_f32(x, op->out, t);
        for (uint32_t i = 0; i < n_ctx; i++)
            seen[i] = *list == LIST_ALL && i <= x->s->token[t].pos;
        for (uint32_t i = 0; *list != LIST_ALL && i < *list; i++)
            if (list[1 + i] < n_ctx)
                seen[list[1 + i]] = 1;
        tell(x, op, plain ? "visible" : "attended", 1, seen, 1, n_ctx, 0);
    }
    free(seen);
}

/* What was added, both parts together, of some heads. */
static void dump_added(struct exec *x, const struct op *op)
{
    size_t width = width_of(x, op->out);
    float *sum = malloc(width * sizeof *sum);

    for (uint32_t t = 0; sum && t < x->s->n_tokens; t++) {
        for (size_t i = 0; i < width; i++)
            sum[i] = row_f32(x, op->in[0], t)[i] + row_f32(x, op->in[1], t)[i];
        tell(x, op, NULL, 0, sum, 1, op->heads, width / op->heads);
    }
    free(sum);
}

/* The numbers of a table's rows. */
static void dump_row_ids(struct exec *x, const struct op *op)
{
    const struct program *p = x->c.prog;
    uint32_t all = 0, at = 0;

    for (uint32_t i = 0; i < p->n_tables; i++) {
        at = p->table[i].first == op->n[0] ? all : at;
        all += p->table[i].rows;
    }
    for (uint32_t t = 0; exec_rows(x)->id && t < x->s->n_tokens; t++)
        tell(x, op, NULL, 1, exec_rows(x)->id + (size_t)t * all + at, 1, op->n[1], 0);
}

void run_dump(struct exec *x, const struct op *op)
{
    size_t n, width;

    if (op->kind == OP_MOE_SUM && x->keep && op->name[0])
        tell(x, op, "expert_out", 0, x->keep, x->s->n_tokens, x->c.prog->top_k, width_of(x, op->out));
    if (!op->name[0] || (x->s->pass == STEP_CHAIN && op->state != PROG_NONE)) /* a row beyond the positions */
        return;
    switch ((enum op_kind)op->kind) {
    case OP_ROUTER:
        dump_router(x, op);
        return;
    case OP_HYPER_MIX:
        dump_mix(x, op);
        return;
    case OP_POOL:
        dump_pools(x, op);
        return;
    case OP_SELECT:
        dump_list(x, op);
        return;
    case OP_ROWS:
        if (!strstr(op->name, "_rows")) /* a token's embedding is told as it is */
            break;
        dump_row_ids(x, op);
        return;
    case OP_ADD:
        if (op->in[1] == PROG_NONE)
            break;
        dump_added(x, op);
        return;
    case OP_DELTA:
        dump_matrix(x, op);
        break;
    default:
        break;
    }
    n = live_rows(x, op->out);
    width = width_of(x, op->out);
    tell(x, op, NULL, 0, x->buf[op->out].data, n, op->heads ? op->heads : width, op->heads ? width / op->heads : 0);
}
