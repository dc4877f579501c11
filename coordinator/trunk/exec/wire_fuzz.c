/* FUZZ: coordinator/trunk/exec/wire.c coordinator/trunk/exec/program.c kernels/type/type.c shm/err.c
 * Images of programs: whatever passes the checks has indices inside its arrays. */
#include <stdlib.h>
#include <string.h>

#include "coordinator/trunk/exec/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct geometry g = {.n_layers = 4, .n_experts = 8, .top_k = 2, .n_embd = 32, .n_vocab = 16};
    struct program *p;
    struct weight_at *at;
    struct err e = {0};
    enum kv_type kv;

    if (wire_read(data, n, 1 << 20, &g, &p, &at, &kv, &e))
        return 0;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct op *o = &p->op[i];
        for (int k = 0; k < 2; k++)
            if (o->in[k] != PROG_NONE && o->in[k] >= p->n_buffers && k == 0)
                abort();
        if (o->kind == OP_MATMUL && (o->w >= p->n_weights || o->out >= p->n_buffers))
            abort();
    }
    if (p->logits >= p->n_buffers)
        abort();
    program_free(p);
    free(at);
    return 0;
}
