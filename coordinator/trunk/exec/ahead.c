/* The same operations as run_cpu.c's, for one token, in space of its own: the pass that is under way
 * must not see them. */
#include "coordinator/trunk/exec/ahead.h"

#include <stdlib.h>

#include "kernels/func/func.h"
#include "kernels/matmul/finish.h"
#include "kernels/matmul/matmul.h"
#include "kernels/norm/norm.h"
#include "kernels/quantise/quantise.h"
#include "kernels/topk/topk.h"

/* The last operation before op `end` that makes this buffer. */
static const struct op *maker(const struct program *p, uint32_t begin, uint32_t end, uint32_t buf,
                              enum op_kind kind)
{
    for (uint32_t i = end; i-- > begin;)
        if (p->op[i].out == buf && p->op[i].kind != OP_PREPARE)
            return p->op[i].kind == kind ? &p->op[i] : NULL;
    return NULL;
}

struct ahead_layer ahead_find(const struct program *p, uint32_t at)
{
    struct ahead_layer a = {0};
    uint32_t i = at + 1, r, n_ops = at < p->draft_at ? p->draft_at : p->n_ops; /* of the same pass */

    while (i < n_ops && p->op[i].kind != OP_ROUTER)
        i++;
    r = i;
    while (i < n_ops && p->op[i].kind != OP_MOE_CALL)
        i++;
    if (i == n_ops)
        return a;
    a.layer = p->op[i].n[0];
    a.router = &p->op[r];
    a.product = maker(p, at + 1, r, a.router->in[0], OP_MATMUL);
    if (a.product)
        a.norm = maker(p, at + 1, (uint32_t)(a.product - p->op), a.product->in[0], OP_RMS_NORM);
    if (!a.norm || p->buffer[a.norm->in[0]].width != p->n_embd || a.norm->in[0] == a.norm->out)
        return (struct ahead_layer){0};
    return a;
}

int ahead_space(const struct program *p, struct ahead_space *s)
{
    size_t width = 1, form = 1;

    for (uint32_t i = 0; i < p->n_buffers; i++) {
        if (width < p->buffer[i].width)
            width = p->buffer[i].width;
        for (uint32_t f = 0; f < 32; f++)
            if (p->buffer[i].forms >> f & 1 && f != ACT_F32 && form < act_stride((int)f, p->buffer[i].width))
                form = act_stride((int)f, p->buffer[i].width);
    }
    *s = (struct ahead_space){0};
    if (posix_memalign((void **)&s->h, 64, width * sizeof(float)) ||
        posix_memalign((void **)&s->logits, 64, width * sizeof(float)) ||
        posix_memalign((void **)&s->form, 64, form)) {
        ahead_free(s);
        return -1;
    }
    return 0;
}

void ahead_free(struct ahead_space *s)
{
    free(s->h);
    free(s->logits);
    free(s->form);
    *s = (struct ahead_space){0};
}

void ahead_choose(const struct program *p, const uint8_t *const *weight, const struct ahead_layer *a,
                  const float *residual, struct ahead_space *s, uint32_t *ids)
{
    const struct prog_weight *w = &p->weight[a->product->w];
    const void *acts = s->h;
    size_t stride = w->cols * sizeof(float);

    for (uint32_t i = 0; i < a->norm->n[1]; i++)
        rms_norm(residual + i * a->norm->n[0], (const float *)weight[a->norm->w], s->h + i * a->norm->n[0],
                 a->norm->n[0], a->norm->f[0]);
    if (a->product->n[0] != ACT_F32) {
        act_prepare(a->product->n[0], s->h, w->cols, s->form);
        acts = s->form;
        stride = act_stride(a->product->n[0], w->cols);
    }
    matmul(w->type, weight[a->product->w], w->row_bytes, w->cols, 0, w->rows, acts, stride, NULL, 1, s->logits,
           w->rows);
    if (w->scale != PROG_NONE || w->bias != PROG_NONE)
        product_finish(s->logits, w->rows, w->scale == PROG_NONE ? NULL : (const float *)weight[w->scale],
                       w->bias == PROG_NONE ? NULL : (const float *)weight[w->bias]);
    if (a->router->n[2] & ROUTER_SIGMOID) { /* h is read no more */
        const float *bias = a->router->w == PROG_NONE ? NULL : (const float *)weight[a->router->w];
        vec_sigmoid(s->logits, s->h, a->router->n[0]);
        for (uint32_t i = 0; i < a->router->n[0]; i++)
            s->logits[i] = s->h[i] + (bias ? bias[i] : 0);
    }
    order_topk(s->logits, a->router->n[0], a->router->n[1], ids);
}
