/* The operations between the residual and the next layer's router, once more for one token, by the leader
 * alone and in space of its own: the pass that is under way must not see them, and nothing of them goes
 * into a result. */
#include "coordinator/trunk/exec/ahead.h"

#include <stdlib.h>
#include <string.h>

#include "coordinator/trunk/exec/run.h"

/* Makes a row out of rows of the same token, and keeps no state. */
static int is_of_row(const struct op *op)
{
    switch ((enum op_kind)op->kind) {
    case OP_PREPARE:
    case OP_MATMUL:
    case OP_FUNC:
    case OP_SCALE:
    case OP_HYPER_MIX:
    case OP_HYPER_COLLAPSE:
    case OP_BRANCH_MEAN:
        return 1;
    case OP_RMS_NORM:
        return op->n[3] == 0; /* of whole rows */
    default:
        return 0;
    }
}

/* Adds to what is there: what it adds to is the residual. */
static int is_addition(const struct op *op)
{
    return op->kind == OP_ADD || op->kind == OP_ADD_TIMES || op->kind == OP_HYPER_EXPAND;
}

static int is_in(const uint32_t *set, uint32_t n, uint32_t x)
{
    while (n && set[n - 1] != x)
        n--;
    return n != 0;
}

/* Is the form that op makes what one of these operations reads? */
static int is_wanted_form(const struct program *p, const struct ahead_layer *a, const struct op *op)
{
    for (uint32_t i = 0; i < a->n; i++) {
        const struct op *user = &p->op[a->op[i]];
        if (user->kind == OP_MATMUL && user->in[0] == op->in[0] && user->n[0] == op->n[0])
            return 1;
    }
    return 0;
}

/* Buffers that operations of a guess read, and write. */
struct touched {
    uint32_t n_read, n_written, read[AHEAD_OPS * USES_READ], written[AHEAD_OPS * USES_WRITTEN];
};
static void touch(struct touched *t, const struct op *op)
{
    struct op_uses u = program_uses(op);

    for (int i = 0; i < USES_READ; i++)
        if (u.read[i] != PROG_NONE)
            t->read[t->n_read++] = u.read[i];
    for (int i = 0; i < USES_WRITTEN; i++)
        if (u.written[i] != PROG_NONE)
            t->written[t->n_written++] = u.written[i];
}

/* From the router back, until nothing but the residual is wanted. */
static int walk(const struct program *p, uint32_t begin, uint32_t router, struct ahead_layer *a)
{
    uint32_t wanted[AHEAD_OPS * USES_READ] = {p->op[router].in[0]}, n_wanted = 1;

    a->op[a->n++] = router;
    for (uint32_t i = router; i-- > begin && n_wanted;) {
        const struct op *op = &p->op[i];
        uint32_t makes = op->kind == OP_PREPARE ? op->in[0] : op->out, at = 0;
        while (at < n_wanted && wanted[at] != makes)
            at++;
        if (at == n_wanted || (op->kind == OP_PREPARE && !is_wanted_form(p, a, op)))
            continue;
        if (is_addition(op)) { /* as it is now */
            wanted[at] = wanted[--n_wanted];
            continue;
        }
        if (!is_of_row(op) || a->n == AHEAD_OPS || p->buffer[makes].rows)
            return -1;
        a->op[a->n++] = i;
        if (op->kind == OP_PREPARE)
            continue; /* the row itself is still wanted */
        wanted[at] = wanted[--n_wanted];
        struct op_uses u = program_uses(op);
        for (int k = 0; k < USES_READ; k++)
            if (u.read[k] != PROG_NONE && !is_in(wanted, n_wanted, u.read[k]))
                wanted[n_wanted++] = u.read[k];
    }
    return 0;
}

struct ahead_layer ahead_find(const struct program *p, uint32_t at)
{
    struct ahead_layer a = {0};
    uint32_t call = at + 1, router, n_ops = at < p->draft_at ? p->draft_at : p->n_ops; /* of the same pass */

    while (call < n_ops && p->op[call].kind != OP_ROUTER)
        call++;
    router = call;
    while (call < n_ops && p->op[call].kind != OP_MOE_CALL)
        call++;
    if (call == n_ops)
        return a;
    a.layer = p->op[call].n[0];
    if (walk(p, at + 1, router, &a))
        return (struct ahead_layer){0};
    for (uint32_t i = 0; i < a.n / 2; i++) {
        uint32_t other = a.op[i];
        a.op[i] = a.op[a.n - 1 - i];
        a.op[a.n - 1 - i] = other;
    }
    return a;
}

struct ahead_guess {
    struct ahead_layer *of; /* by op, of OP_MOE_CALL */
    struct buffer *buf;     /* by buffer: one of our own where guesses write, else the executor's */
    uint8_t *own;           /* by buffer */
    uint32_t n_buffers;
};

/* Marks what guesses write, and leaves out guesses that would read something else of it: the pass's own. */
static void own_buffers(const struct program *p, struct ahead_guess *g)
{
    for (uint32_t i = 0; i < p->n_ops; i++) {
        struct touched t = {0};
        for (uint32_t k = 0; k < g->of[i].n; k++)
            touch(&t, &p->op[g->of[i].op[k]]);
        for (uint32_t k = 0; k < t.n_written; k++)
            g->own[t.written[k]] = 1;
    }
    for (uint32_t i = 0; i < p->n_ops; i++) {
        struct touched t = {0};
        int ours = 1;
        for (uint32_t k = 0; k < g->of[i].n && ours; k++) {
            uint32_t before = t.n_written, read = t.n_read;
            touch(&t, &p->op[g->of[i].op[k]]);
            for (; read < t.n_read; read++)
                ours &= !g->own[t.read[read]] || is_in(t.written, before, t.read[read]);
        }
        if (!ours)
            g->of[i].n = 0;
    }
}

int ahead_open(const struct exec *x, struct ahead_guess **out)
{
    const struct program *p = x->c.prog;
    struct ahead_guess *g = calloc(1, sizeof *g);

    *out = g;
    if (!g)
        return -1;
    g->n_buffers = p->n_buffers;
    g->of = calloc(p->n_ops + 1, sizeof *g->of);
    g->buf = calloc(p->n_buffers + 1, sizeof *g->buf);
    g->own = calloc(p->n_buffers + 1, 1);
    if (!g->of || !g->buf || !g->own)
        return -1;
    for (uint32_t i = 0; i < p->n_ops; i++)
        if (p->op[i].kind == OP_MOE_CALL)
            g->of[i] = ahead_find(p, i);
    own_buffers(p, g);
    for (uint32_t i = 0; i < p->n_buffers; i++)
        if (!g->own[i])
            g->buf[i] = x->buf[i];
        else if (buffer_open(&p->buffer[i], AHEAD_TOKENS, &g->buf[i]))
            return -1;
    return 0;
}

void ahead_close(struct ahead_guess *g)
{
    if (!g)
        return;
    for (uint32_t i = 0; g->own && g->buf && i < g->n_buffers; i++)
        if (g->own[i])
            buffer_close(&g->buf[i]);
    free(g->of);
    free(g->buf);
    free(g->own);
    free(g);
}

void ahead_guess(const struct exec *x, struct ahead_guess *g, uint32_t at, struct moe *m)
{
    const struct ahead_layer *a = &g->of[at];
    const struct op *router;
    struct exec ours = *x;

    if (!a->n || x->s->n_tokens > AHEAD_TOKENS || !moe_foresees(m))
        return;
    ours.buf = g->buf;
    for (uint32_t i = 0; i < a->n; i++)
        exec_op(&ours, &x->c.prog->op[a->op[i]]);
    router = &x->c.prog->op[a->op[a->n - 1]];
    moe_foresee(m, a->layer, g->buf[router->n[3]].data, x->s->n_tokens * router->n[1]);
}
