#include "coordinator/trunk/exec/weights.h"

#include <stdlib.h>

#include "kernels/matmul/matmul.h"
#include "kernels/type/type.h"

int weights_open(const struct program *p, const uint8_t *base, const struct weight_at *at,
                 struct weights *w, struct err *e)
{
    w->n = p->n_weights;
    w->at = calloc(p->n_weights + 1, sizeof *w->at);
    w->widened = calloc(p->n_weights + 1, sizeof *w->widened);
    if (!w->at || !w->widened)
        return err_set(e, -ENOMEM, "no memory for the table of weights");
    for (uint32_t i = 0; i < p->n_weights; i++) {
        w->at[i] = base + at[i].off;
        if (!at[i].vector || p->weight[i].type == W_F32)
            continue;
        w->widened[i] = malloc(p->weight[i].cols * sizeof(float));
        if (!w->widened[i])
            return err_set(e, -ENOMEM, "no memory for a vector of %u values", p->weight[i].cols);
        dequant_row(p->weight[i].type, w->at[i], p->weight[i].cols, w->widened[i]);
        w->at[i] = (const uint8_t *)w->widened[i];
    }
    return 0;
}

void weights_close(struct weights *w)
{
    for (uint32_t i = 0; w->widened && i < w->n; i++)
        free(w->widened[i]);
    free(w->widened);
    free(w->at);
    *w = (struct weights){0};
}
