#include "coordinator/trunk/exec/program.h"

#include <stdlib.h>

static const char *const op_names[OP_KINDS] = {
    "embed",     "prepare", "matmul", "rms_norm", "rope",    "kv_append",
    "attention", "add",     "router", "moe_call", "moe_sum", "pick",
};

const char *op_name(enum op_kind kind)
{
    return kind < OP_KINDS ? op_names[kind] : "?";
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
