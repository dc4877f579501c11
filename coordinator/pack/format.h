/* The bytes of a pack's experts file (README.md beside this says them in words). Little-endian, as
 * this program's machines are; every structure is written and read as it stands here.
 *
 *   head, 4096 bytes · index, whole pages · blocks, each whole pages
 *
 * The index is the arrays one after the other, in this order: n_tensors pack_tensor, n_layers
 * pack_layer, n_layers * n_experts * n_nodes pack_block (layer slowest, node fastest), n_originals
 * pack_original, text_bytes of text. */
#pragma once
#include <stdint.h>

#include "shm/layout.h"

#define PACK_DENSE "dense.gguf"
#define PACK_EXPERTS "experts.pack"
#define PACK_PAGE 4096u
/* keys of the dense file: arrays of u64 */
#define PACK_KEY_ID "conclave.pack.id"       /* 2: pack_head.id */
#define PACK_KEY_MODEL "conclave.pack.model" /* 3: pack_head.model */

#define PACK_MAGIC "CONPACK"
#define PACK_MAGIC_PART "CONPART" /* being written: index and head of a file that may go on */
enum { PACK_VERSION = 1 };
enum {
    PACK_NAME = 64,
    PACK_TENSORS_MAX = 1 << 16,
    PACK_LAYERS_MAX = 512,
    PACK_EXPERTS_MAX = 1024,
    PACK_ORIGINALS_MAX = 99999,
    PACK_TEXT_MAX = 1 << 26,
    PACK_INDEX_MAX = 1 << 28,
};

struct pack_head {
    char magic[8];
    uint32_t version;
    uint32_t n_nodes;
    uint32_t n_layers, n_experts; /* n_experts: largest of a layer */
    uint32_t n_tensors, n_originals;
    uint64_t id[2];       /* of this pack: follows from the originals and n_nodes; in the dense file too */
    uint64_t model[3];    /* of the originals: heat_id's hash and bytes */
    uint64_t dense_bytes; /* of the dense file */
    uint64_t dense_front; /* of these, before the first tensor's data */
    uint64_t dense_front_xxh;
    uint64_t text_bytes;
    uint64_t file_bytes; /* of this file */
    uint64_t index_xxh;  /* XXH3_64 of the index without its last page's padding */
    uint64_t check;      /* XXH3_64 of this structure up to here */
};
_Static_assert(sizeof(struct pack_head) == 128, "a file's structure has a fixed size");

/* Every tensor of the originals: the dense ones in the order of the dense file, then the experts'. */
struct pack_tensor {
    char name[PACK_NAME]; /* 1 to 63 bytes, then NULs */
    uint32_t type, n_dims;
    uint64_t dims[4];
    uint32_t dense;    /* 1: in the dense file. 0: its rows are in the blocks */
    uint32_t original; /* which of the originals has it, */
    uint64_t original_off; /* from this byte on */
    uint64_t xxh;      /* dense: XXH3_64 of its bytes */
};
_Static_assert(sizeof(struct pack_tensor) == 128, "a file's structure has a fixed size");

struct pack_matrix { /* of each of a layer's experts: rows first_row to first_row + rows of its part of `tensor` */
    uint32_t tensor, first_row, rows, reserved;
};
struct pack_layer {
    uint32_t n_experts; /* 0: none; the rest is 0 then */
    uint32_t reserved;
    struct pack_matrix m[N_MATS];
};
_Static_assert(sizeof(struct pack_layer) == 56, "a file's structure has a fixed size");

/* One node's rows of an expert, as shm/layout.h's packed_off says. All 0: the layer has no such
 * expert. No rows: bytes 0. */
struct pack_block {
    uint64_t off;   /* in the file, a multiple of 4096; blocks lie in the order of the index */
    uint64_t bytes; /* packed_bytes; zeros follow up to a whole page */
    uint64_t xxh;   /* XXH3_64 of these bytes */
};
_Static_assert(sizeof(struct pack_block) == 24, "a file's structure has a fixed size");

struct pack_original {
    uint64_t bytes;
    int64_t mtime_ns;
    uint64_t front, front_xxh; /* the part before the first tensor's data, and its XXH3_64 */
    uint32_t path_at, path_n;  /* in the text; a NUL follows. Absolute */
};
_Static_assert(sizeof(struct pack_original) == 40, "a file's structure has a fixed size");

/* Bytes of the index without padding; counts within the limits above (fits 64 bits then). */
static inline uint64_t pack_index_bytes(const struct pack_head *h)
{
    return (uint64_t)h->n_tensors * sizeof(struct pack_tensor) +
           (uint64_t)h->n_layers * sizeof(struct pack_layer) +
           (uint64_t)h->n_layers * h->n_experts * h->n_nodes * sizeof(struct pack_block) +
           (uint64_t)h->n_originals * sizeof(struct pack_original) + h->text_bytes;
}
static inline uint64_t pack_pages(uint64_t bytes)
{
    return (bytes + PACK_PAGE - 1) & ~(uint64_t)(PACK_PAGE - 1);
}
static inline uint64_t pack_blocks_at(const struct pack_head *h)
{
    return PACK_PAGE + pack_pages(pack_index_bytes(h));
}
