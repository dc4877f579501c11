#include "coordinator/trunk/exec/program.h"

#include <stdlib.h>

static const char *const op_names[OP_KINDS] = {
    "embed",      "prepare",       "matmul",     "rms_norm",   "rope",         "kv_append", "attention", "add",
    "router",     "moe_call",      "moe_sum",    "pick",       "matmul_parts", "repeat",    "l2_norm",   "layer_norm",
    "gated_norm", "func",          "scale",      "swiglu",     "conv",         "decay",     "delta",     "pool",
    "select",     "hyper_mix",     "hyper_collapse", "hyper_expand", "hyper_mean", "slice", "mul", "add_times", "carry",
    "rows",       "branch_mean", "branch_gate",
};

const char *op_name(enum op_kind kind)
{
    return kind < OP_KINDS ? op_names[kind] : "?";
}

/* kernels/delta/delta_cuda.h, kernels/attention/attention.cu */
enum { CARD_KEYS = 256, CARD_VALUES = 512, CARD_ALIGN = 16 };

/* Everything, but for what their kernels do not do. */
static int on_cards(const struct program *p, const struct op *op)
{
    switch ((enum op_kind)op->kind) {
    case OP_MATMUL_PARTS: /* one number of parts, each one's rows aligned, and nothing after the product */
        for (uint32_t i = 0; i < p->n_ops; i++)
            if (p->op[i].kind == OP_MATMUL_PARTS && p->op[i].n[1] != op->n[1])
                return 0;
        return p->weight[op->w].scale == PROG_NONE && p->weight[op->w].bias == PROG_NONE &&
               p->weight[op->w].rows / op->n[1] * p->weight[op->w].row_bytes % CARD_ALIGN == 0;
    case OP_DELTA:
        return p->state[op->state].k_width <= CARD_KEYS;
    case OP_ATTENTION:
        return p->state[op->state].head_values <= CARD_VALUES;
    case OP_SELECT:
        return op->n[1] > 0;
    default:
        return op->kind < OP_KINDS;
    }
}

uint32_t program_not_on_cards(const struct program *p)
{
    for (uint32_t i = 0; i < p->n_ops; i++)
        if (!on_cards(p, &p->op[i]))
            return i;
    return PROG_NONE;
}

void program_free(struct program *p)
{
    if (!p)
        return;
    free(p->op);
    free(p->buffer);
    free(p->weight);
    free(p->state);
    free(p);
}

struct op_uses program_uses(const struct op *op)
{
    const uint32_t none = PROG_NONE;
    struct op_uses u = {.read = {op->in[0], op->in[1], none, none, none, none},
                        .written = {op->out, none, none},
                        .weight = {op->w, none},
                        .state = {none, none}};

    switch ((enum op_kind)op->kind) {
    case OP_PREPARE:
        u.written[0] = op->in[0]; /* its forms */
        break;
    case OP_ROPE:
    case OP_ADD:
    case OP_SCALE:
    case OP_MUL:
    case OP_ADD_TIMES:
    case OP_HYPER_EXPAND:
        u.read[2] = op->out;
        break;
    case OP_ROUTER:
        u.written[1] = op->n[3];
        u.written[2] = op->n[4];
        break;
    case OP_LAYER_NORM:
        u.weight[1] = op->n[0];
        break;
    case OP_DECAY:
    case OP_HYPER_MIX:
        u.weight[1] = op->n[2];
        break;
    case OP_ATTENTION:
    case OP_SELECT:
        u.state[0] = op->state;
        break;
    case OP_DELTA:
        u.state[0] = op->state;
        u.read[2] = op->n[0];
        u.read[3] = op->n[1];
        u.read[4] = op->n[2];
        u.changes_state = 1;
        break;
    case OP_POOL:
        u.state[0] = op->state;
        u.state[1] = op->n[0];
        u.changes_state = 1;
        break;
    case OP_KV_APPEND:
    case OP_CONV:
        u.state[0] = op->state;
        u.changes_state = 1;
        break;
    case OP_CARRY:
        u.read[2] = op->out; /* the other rows stay */
        break;
    case OP_BRANCH_GATE:
        u.read[2] = op->n[1];
        break;
    default:
        break;
    }
    return u;
}
