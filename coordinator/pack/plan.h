/* What a pack of a model will be: head and index of the experts file, the dense file's front part, and
 * for every stretch of either file where its bytes come from. Made from the model and the number of nodes
 * alone, so that packing again, or going on, makes the same files. Reads metadata, no weights. */
#pragma once
#include "coordinator/model/model.h"
#include "coordinator/pack/format.h"
#include "shm/err.h"

struct pack_plan {
    const struct model *m; /* borrowed */
    struct pack_head head; /* magic, index_xxh and check are the writer's */
    void *index;           /* pack_index_bytes, checksums 0; owned, as what follows */
    struct pack_tensor *tensor;
    struct pack_layer *layer;
    struct pack_block *block;
    struct pack_original *original;
    char *text;
    uint64_t *dense_off;    /* by dense tensor: where it goes in the dense file */
    struct expert_layer *shape; /* by layer */
    uint8_t *front;         /* of the dense file: head.dense_front bytes */
    uint32_t n_dense;
    uint64_t n_units;       /* dense tensors, then blocks */
    uint64_t bytes;         /* of both files, head and front included */
};

/* Hands over *p. The model must not come from a pack. */
int pack_plan_make(const struct model *m, uint32_t n_nodes, struct pack_plan *p, struct err *e);
void pack_plan_free(struct pack_plan *p); /* all zero is allowed */

/* One stretch of one of the two files, with its own checksum: a dense tensor, or a block. */
struct pack_unit {
    int dense;     /* which file */
    uint64_t off;  /* a multiple of PACK_PAGE */
    uint64_t bytes; /* zeros follow to a whole page; 0: nothing */
    uint64_t *xxh; /* its checksum in the index */
    int n;         /* segments, in ascending order of `at`; zeros between them */
    struct pack_segment {
        uint32_t original;
        uint64_t from, bytes, at; /* bytes of the original from `from` on lie `at` bytes into the unit */
    } segment[N_MATS];
};
struct pack_unit pack_plan_unit(const struct pack_plan *p, uint64_t i); /* i < n_units */

/* Bytes of the part before the tensors' data. */
uint64_t pack_front_bytes(const struct gguf *g, uint32_t shard);
/* XXH3_64 of the first n bytes of a file. */
int pack_front_hash(int fd, const char *path, uint64_t n, uint64_t *xxh, struct err *e);
