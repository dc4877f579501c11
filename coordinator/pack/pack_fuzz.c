/* Any bytes as the head and index of an experts file, its checksums made right: refused with one line, or
 * every record in it can be looked at and lies in its file. Seeds: coordinator/pack/pack_seeds DIR.
 * FUZZ: coordinator/pack/pack.c coordinator/model/utf8.c kernels/type/type.c shm/err.c -lxxhash
 */
#include <stdlib.h>
#include <string.h>

#include "coordinator/pack/pack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* As a hostile writer would: what is parsed must not be only what a checksum lets through. */
static void mend(uint8_t *file, size_t n)
{
    struct pack_head *h = (struct pack_head *)file;

    if (h->n_nodes <= MAX_NODES && h->n_layers <= PACK_LAYERS_MAX && h->n_experts <= PACK_EXPERTS_MAX &&
        h->n_tensors <= PACK_TENSORS_MAX && h->n_originals <= PACK_ORIGINALS_MAX &&
        h->text_bytes <= PACK_TEXT_MAX && pack_index_bytes(h) <= n - PACK_PAGE)
        h->index_xxh = pack_index_check(h, file + PACK_PAGE);
    h->check = pack_head_check(h);
}

static void look(const struct pack *p)
{
    const struct pack_head *h = &p->head;

    for (uint32_t i = 0; i < h->n_originals; i++)
        if (strlen(pack_original_path(p, i)) != p->original[i].path_n)
            abort();
    for (uint32_t i = 0; i < h->n_tensors; i++)
        if (p->tensor[i].original_off + pack_tensor_bytes(p, &p->tensor[i]) >
            p->original[p->tensor[i].original].bytes)
            abort();
    for (uint32_t l = 0; l < h->n_layers; l++)
        for (uint32_t x = 0; x < p->layer[l].n_experts; x++) {
            for (uint32_t k = 0; k < h->n_nodes; k++) {
                const struct pack_block *b = pack_block(p, l, x, k);
                if (b->off + b->bytes > h->file_bytes || b->off < pack_blocks_at(h))
                    abort();
            }
            for (int m = 0; m < N_MATS; m++) {
                const struct expert_matrix *s = &p->shape[l].m[m];
                uint32_t original;
                uint64_t at = pack_original_at(p, l, x, m, &original);
                if (at + s->rows * s->row_bytes > p->original[original].bytes)
                    abort();
            }
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct pack_head h;
    struct pack *p = NULL;
    struct err e = {0};
    uint8_t *file;

    if (n < PACK_PAGE)
        return 0;
    file = malloc(n);
    if (!file)
        return 0;
    memcpy(file, data, n);
    memcpy(&h, file, sizeof h);
    mend(file, n);
    if (pack_parse("file", file, n, h.file_bytes, &p, &e)) {
        if (!e.code || !e.msg[0] || strchr(e.msg, '\n') || p)
            abort();
    } else {
        look(p);
    }
    pack_close(p);
    free(file);
    return 0;
}
