/* A pack: the experts file beside a dense GGUF, opened and checked. Holds the index, never a block's
 * bytes; read-only after pack_open. Everything in it came from a file: what is handed out here has
 * been compared with what it must be. */
#pragma once
#include "coordinator/pack/format.h"
#include "shm/err.h"

struct pack {
    char *path; /* of the experts file; owned, as all below */
    int fd;     /* O_RDONLY; -1 after pack_parse */
    struct pack_head head;
    void *index;
    const struct pack_tensor *tensor;
    const struct pack_layer *layer;
    const struct pack_block *block;
    const struct pack_original *original;
    const char *text;
    uint64_t *row_bytes;        /* by tensor */
    struct expert_layer *shape; /* by layer, packed: what packed_off wants */
};

/* Hands over *out. A file that is unfinished, cut off, damaged or of another version is one line. */
int pack_open(const char *path, struct pack **out, struct err *e);
/* The same from memory, n bytes of the file's beginning (for tests). */
int pack_parse(const char *name, const void *data, size_t n, uint64_t file_bytes, struct pack **out,
               struct err *e);
void pack_close(struct pack *p); /* NULL is allowed */

/* The block of a node's rows; layer, expert and node in range. */
static inline const struct pack_block *pack_block(const struct pack *p, uint32_t layer, uint32_t expert,
                                                  uint32_t node)
{
    return &p->block[((uint64_t)layer * p->head.n_experts + expert) * p->head.n_nodes + node];
}
static inline const char *pack_original_path(const struct pack *p, uint32_t i)
{
    return p->text + p->original[i].path_at;
}
/* Where matrix mat of an expert lay in its original: the file's number, and the byte. */
uint64_t pack_original_at(const struct pack *p, uint32_t layer, uint32_t expert, int mat,
                          uint32_t *original);
/* The record of a tensor by name; NULL: none. */
const struct pack_tensor *pack_tensor(const struct pack *p, const char *name);
uint64_t pack_tensor_bytes(const struct pack *p, const struct pack_tensor *t);
/* Bytes of all blocks with their padding. */
uint64_t pack_experts_bytes(const struct pack *p);
/* head.check, head.index_xxh: what they must be. */
uint64_t pack_head_check(const struct pack_head *h);
uint64_t pack_index_check(const struct pack_head *h, const void *index);
