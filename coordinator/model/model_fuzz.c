/* Any bytes as the front part of a model file whose data is there: refused with one line, or every
 * range that the engine would read lies inside the file. Seeds: coordinator/model/gguf_seeds DIR.
 * FUZZ: coordinator/model/model.c coordinator/model/model_take.c coordinator/model/arch_qwen3.c
 * FUZZ: coordinator/model/arch_glm5next.c coordinator/model/arch_qwen35.c coordinator/model/arch_qwen4.c
 * FUZZ: coordinator/model/gguf.c coordinator/model/gguf_front.c coordinator/model/gguf_split.c
 * FUZZ: coordinator/pack/pack.c -lxxhash
 * FUZZ: coordinator/model/utf8.c kernels/type/type.c shm/err.c
 */
#include <stdlib.h>
#include <string.h>

#include "coordinator/model/model.h"

enum { FILE_BYTES = 1 << 30 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void look_at(const struct model *m)
{
    for (uint32_t i = 0; i < m->n_tensors; i++)
        if (m->tensor[i].file_offset + m->tensor[i].bytes > FILE_BYTES)
            abort();
    for (uint32_t il = 0; il < m->n_layers; il++)
        for (int k = 0; k < EXPERT_MATRICES; k++) {
            const struct model_matrix *x = &m->layer[il].expert[k];

            if (x->bytes != x->rows * x->row_bytes ||
                x->file_offset + x->stride * (m->n_experts - 1) + x->bytes > FILE_BYTES)
                abort();
        }
    if (m->top_k > m->n_experts || m->n_head % m->n_head_kv || m->n_rot > m->head_dim ||
        m->output.w >= m->n_tensors || m->token_embd >= m->n_tensors)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct gguf *g;
    struct model *m = NULL;
    struct err e = {0};

    if (n > FILE_BYTES || gguf_parse("fuzz", data, n, FILE_BYTES, &g, &e))
        return 0;
    if (model_from_gguf(g, MODEL_ANY_TYPE, &m, &e)) {
        if (m || !e.code || strncmp(e.msg, "fuzz: ", 6) || strchr(e.msg, '\n'))
            abort();
        return 0;
    }
    look_at(m);
    model_close(m);
    return 0;
}
