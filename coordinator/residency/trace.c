/* A trace as the simulator wants it. */
#include <stdlib.h>

#include "coordinator/npy/npy.h"
#include "coordinator/residency/replay.h"
#include "shm/size.h"

static int take(const char *name, const struct npy *a, uint32_t n_experts, struct trace *t,
                struct err *e)
{
    size_t row;
    uint32_t most = 0;

    if (a->n_dims != 3)
        return err_set(e, -EINVAL, "%s: %u dimensions (wanted 3: tokens, layers, experts used)",
                       name, a->n_dims);
    if (!a->n)
        return err_set(e, -EINVAL, "%s: an empty trace", name);
    if (a->shape[0] > UINT32_MAX || a->shape[1] > UINT16_MAX || a->shape[2] > UINT16_MAX ||
        a->n >= UINT32_MAX)
        return err_set(e, -EINVAL, "%s: a trace of %zu uses is too large", name, a->n);
    t->n_tokens = (uint32_t)a->shape[0];
    t->n_layers = (uint32_t)a->shape[1];
    t->top_k = (uint32_t)a->shape[2];
    row = (size_t)t->n_layers * t->top_k;
    for (size_t i = 0; i < a->n; i++) {
        uint32_t x = npy_at(a, i);
        if (n_experts ? x >= n_experts : x > UINT16_MAX)
            return err_set(e, -EINVAL, "%s: expert %u at token %zu, layer %zu (wanted below %u)",
                           name, x, i / row, i % row / t->top_k,
                           n_experts ? n_experts : UINT16_MAX + 1u);
        if (x > most)
            most = x;
    }
    t->n_experts = n_experts ? n_experts : most + 1;
    if ((uint64_t)t->n_layers * t->n_experts >= 1 << 28)
        return err_set(e, -EINVAL, "%s: %u layers of %u experts are too many", name, t->n_layers,
                       t->n_experts);
    t->pair = malloc(a->n * sizeof *t->pair);
    if (!t->pair)
        return err_set(e, -ENOMEM, "no memory for the %zu uses of %s", a->n, name);
    for (size_t i = 0; i < a->n; i++)
        t->pair[i] = (uint32_t)(i % row / t->top_k) * t->n_experts + npy_at(a, i);
    return 0;
}

int trace_read(const char *name, uint32_t n_experts, struct trace *t, struct err *e)
{
    struct npy a;
    int rc = npy_read(name, &a, e);

    *t = (struct trace){0};
    if (!rc)
        rc = take(name, &a, n_experts, t, e);
    npy_free(&a);
    return rc;
}

void trace_free(struct trace *t)
{
    free(t->pair);
    *t = (struct trace){0};
}
