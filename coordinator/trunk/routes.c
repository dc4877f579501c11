/* The router's choices on their way to a file. A pass is kept until the next one begins, because its
 * layers come one after another. */
#define _GNU_SOURCE
#include "coordinator/trunk/routes.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/model/keep_models.h"
#include "coordinator/npy/npy.h"

struct routes {
    struct npy_writer *file;
    uint32_t n_layers, n_recorded, used, max_tokens, n_tokens;
    uint32_t *index; /* by layer: its row of the array, or UINT32_MAX */
    uint32_t *pass;  /* (max_tokens, n_recorded, used) */
    struct err e;    /* the first failure; nothing is written after it */
    int failed;
};

int routes_open(const char *path, const struct expert_layer *layer, uint32_t n_layers,
                uint32_t max_tokens, struct routes **out, struct err *e)
{
    struct routes *r = calloc(1, sizeof *r);
    uint32_t most = 0;
    int rc;

    if (!r)
        return err_set(e, -ENOMEM, "no memory to record routes");
    rc = keep_models(path, e);
    r->n_layers = n_layers;
    r->max_tokens = max_tokens;
    r->index = malloc(((size_t)n_layers + 1) * sizeof *r->index);
    for (uint32_t l = 0; r->index && l < n_layers && !rc; l++) {
        r->index[l] = layer[l].n_experts ? r->n_recorded++ : UINT32_MAX;
        if (!layer[l].n_experts)
            continue;
        if (r->used && r->used != layer[l].top_k)
            rc = err_set(e, -ENOTSUP, "%s: layers use %u and %u experts a token: no array holds their routes",
                         path, r->used, layer[l].top_k);
        r->used = layer[l].top_k;
        most = layer[l].n_experts > most ? layer[l].n_experts : most;
    }
    if (!rc && r->index)
        r->pass = malloc((size_t)max_tokens * r->n_recorded * r->used * sizeof *r->pass + 1);
    if (!rc && (!r->index || !r->pass))
        rc = err_set(e, -ENOMEM, "no memory to record routes");
    if (!rc)
        rc = npy_create(path, most <= 256 ? 1 : 2, 2, (uint32_t[]){r->n_recorded, r->used}, &r->file, e);
    if (rc) {
        routes_close(r, NULL);
        return rc;
    }
    *out = r;
    return 0;
}

static void write_pass(struct routes *r)
{
    for (uint32_t t = 0; t < r->n_tokens && !r->failed; t++)
        r->failed = npy_write(r->file, r->pass + (size_t)t * r->n_recorded * r->used, &r->e);
    r->n_tokens = 0;
}

void routes_step(struct routes *r, uint32_t n_tokens)
{
    assert(n_tokens <= r->max_tokens);
    write_pass(r);
    r->n_tokens = n_tokens;
}

void routes_layer(struct routes *r, uint32_t layer, uint32_t used, const int32_t *ids)
{
    assert(layer < r->n_layers && r->index[layer] != UINT32_MAX && used == r->used);
    for (uint32_t t = 0; t < r->n_tokens; t++)
        for (uint32_t k = 0; k < used; k++)
            r->pass[((size_t)t * r->n_recorded + r->index[layer]) * used + k] = (uint32_t)*ids++;
}

int routes_close(struct routes *r, struct err *e)
{
    int rc = 0;

    if (!r)
        return 0;
    if (r->file)
        write_pass(r);
    if (r->file && !npy_rows(r->file))
        npy_drop(r->file);
    else
        rc = npy_close(r->file, r->failed ? NULL : e);
    if (r->failed)
        rc = err_set(e, r->failed, "%s", r->e.msg);
    free(r->index);
    free(r->pass);
    free(r);
    return rc;
}
