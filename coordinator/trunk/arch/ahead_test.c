/* What is foreseen of the next layer, in the programs of the golden models: behind every call but a pass's last one
 * the operations from the residual to the next router, whatever lies between them. */
#include "coordinator/trunk/exec/ahead.h"

#include "coordinator/trunk/arch/arch.h"
#include "kernels/quantise/quantise.h"
#include "tests/test.h"

/* The next call of the same pass; p->n_ops: none. */
static uint32_t next_call(const struct program *p, uint32_t at)
{
    uint32_t end = at < p->draft_at ? p->draft_at : p->n_ops;

    for (uint32_t i = at + 1; i < end; i++)
        if (p->op[i].kind == OP_MOE_CALL)
            return i;
    return p->n_ops;
}

/* Every operation reads what one before it has made, or the residual, which the pass adds to on its way there. */
static void check_chain(const char *name, const struct program *p, uint32_t at, const struct ahead_layer *a)
{
    for (uint32_t k = 0; k < a->n; k++) {
        struct op_uses u = program_uses(&p->op[a->op[k]]);
        CHECK(a->op[k] > at && (!k || a->op[k] > a->op[k - 1]), "%s: order", name);
        CHECK(u.state[0] == PROG_NONE && !u.changes_state, "%s: %s has a state", name, p->op[a->op[k]].name);
        for (int r = 0; r < USES_READ && u.read[r] != PROG_NONE; r++) {
            int made = 0, residual = 0;
            for (uint32_t j = 0; j < k; j++)
                made |= p->op[a->op[j]].out == u.read[r];
            for (uint32_t j = at + 1; j < a->op[k]; j++)
                residual |= p->op[j].out == u.read[r] && (p->op[j].kind == OP_ADD || p->op[j].kind == OP_ADD_TIMES ||
                                                          p->op[j].kind == OP_HYPER_EXPAND);
            CHECK(made || residual, "%s: buffer %u of op %u is nobody's", name, u.read[r], a->op[k]);
        }
    }
}

static void check_model(const char *name, uint32_t drafts, uint32_t streams, uint32_t n)
{
    struct program *p = NULL;
    struct model *m = NULL;
    struct err e = {0};
    uint32_t found = 0;
    char path[128];

    snprintf(path, sizeof path, "tests/golden/tiny/%s/model.gguf", name);
    if (model_open(path, 0, &m, &e) || arch_program_drafting(m, drafts, &p, &e)) {
        CHECK(0, "%s: %s", name, e.msg);
        return;
    }
    for (uint32_t i = 0; i < p->n_ops; i++) {
        if (p->op[i].kind != OP_MOE_CALL)
            continue;
        uint32_t next = next_call(p, i);
        struct ahead_layer a = ahead_find(p, i);
        if (next == p->n_ops) {
            CHECK(a.n == 0, "%s: behind the last layer", name);
            continue;
        }
        found++;
        CHECK(a.n == n, "%s: op %u: %u operations, wanted %u", name, i, a.n, n);
        if (!a.n)
            continue;
        CHECK_EQ(a.layer, p->op[next].n[0]);
        CHECK(p->op[a.op[a.n - 1]].kind == OP_ROUTER && a.op[a.n - 1] < next, "%s: no router", name);
        CHECK_EQ(p->buffer[p->op[a.op[0]].in[0]].width, streams * p->n_embd);
        check_chain(name, p, i, &a);
    }
    CHECK(found > 0, "%s: one layer", name);
    program_free(p);
    model_close(m);
}

/* A router whose operand is made by something that remembers: nothing is foreseen. */
static void check_refusals(void)
{
    struct prog_buffer buffer[] = {{.width = 8}, {.width = 8}, {.width = 4}, {.width = 2, .type = BUF_I32}, {.width = 2}};
    const uint32_t none = PROG_NONE;
    struct op op[] = {
        {.kind = OP_MOE_CALL, .in = {1, 3}, .out = none, .n = {0, 2}},
        {.kind = OP_MOE_SUM, .in = {none, 4}, .out = 1},
        {.kind = OP_ADD, .in = {1, none}, .out = 0},
        {.kind = OP_RMS_NORM, .in = {0, none}, .out = 1, .n = {8, 1}},
        {.kind = OP_MATMUL, .in = {1, none}, .out = 2, .n = {ACT_F32}},
        {.kind = OP_ROUTER, .in = {2, none}, .out = 2, .n = {4, 2, 0, 3, 4}},
        {.kind = OP_MOE_CALL, .in = {1, 3}, .out = none, .n = {1, 2}},
    };
    struct program p = {.n_ops = 7, .n_buffers = 5, .draft_at = 7, .n_embd = 8, .op = op, .buffer = buffer};

    CHECK_EQ(ahead_find(&p, 0).n, 3);
    op[3].n[3] = 4; /* a part of a row */
    CHECK_EQ(ahead_find(&p, 0).n, 0);
    op[3].n[3] = 0;
    op[3].kind = OP_CONV;
    CHECK_EQ(ahead_find(&p, 0).n, 0);
    op[3].kind = OP_RMS_NORM;
    buffer[1].rows = 1; /* of output rows alone */
    CHECK_EQ(ahead_find(&p, 0).n, 0);
    buffer[1].rows = 0;
    p.draft_at = 1; /* the other call is another pass's */
    CHECK_EQ(ahead_find(&p, 0).n, 0);
}

int main(void)
{
    check_model("olmoe", 0, 1, 4);
    check_model("qwen3moe", 0, 1, 4);
    check_model("qwen35moe", 2, 1, 4);
    check_model("qwen4exp", 0, 4, 12);
    check_model("glm5next", 2, 4, 9);
    check_refusals();
    return test_end();
}
