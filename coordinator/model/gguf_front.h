/* The front part of one GGUF file, read and checked: what gguf.c makes a logical file of. Private
 * to gguf.c, gguf_split.c and their tests. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "coordinator/model/gguf.h"
#include "shm/err.h"

struct front_kv {
    uint32_t key_at, key_n; /* the key's bytes, in buf */
    uint32_t kind;          /* enum gguf_kind */
    uint32_t value_at;      /* scalar: its bytes; string: its bytes; array: the first element */
    uint32_t elem;          /* array: kind of its elements */
    size_t n;               /* string: bytes; array: elements */
    uint32_t *index;        /* owned; string array: n + 1 places relative to value_at, see below */
};
/* index[i] is where element i's bytes begin and index[i + 1] - 8 is where they end: the 8 bytes
 * between are the next one's length (after the last element nothing, but the sum is the same). */

struct front {
    char *path;
    int fd; /* owned, -1: from memory */
    uint64_t file_bytes;
    unsigned char *buf; /* the file's bytes from 0; every string in it has become NUL-terminated */
    uint32_t version, alignment;
    uint64_t data_start;
    uint64_t data_end; /* of the last tensor, without padding */
    struct front_kv *kv;
    size_t n_kv;
    uint64_t kv_end; /* byte behind the last value */
    uint32_t *kv_order; /* of kv, by length and bytes of the key */
    struct gguf_tensor *tensor;
    size_t n_tensors;
};

/* Reads a regular file. On failure f holds nothing. */
int front_open(struct front *f, const char *path, struct err *e);
/* From memory, see gguf_parse. */
int front_parse(struct front *f, const char *name, const void *data, size_t n, uint64_t file_bytes,
                struct err *e);
void front_close(struct front *f);

/* NULL: no such key. */
const struct front_kv *front_find(const struct front *f, const char *key);
/* 0, 1 (absent), -EINVAL, as gguf_u64. */
int front_u64(const struct front *f, const char *key, uint64_t *out);
/* One number of the given kind at p, as each kind of result: 0 or -EINVAL. */
int front_number_u64(uint32_t kind, const unsigned char *p, uint64_t *out);
int front_number_i64(uint32_t kind, const unsigned char *p, int64_t *out);
int front_number_f32(uint32_t kind, const unsigned char *p, float *out);

const char *front_kind_name(uint32_t kind);
/* Bytes of one value of a kind that has a fixed size; 0: none or unknown. */
size_t front_kind_bytes(uint32_t kind);

/* Order of names: shorter first, then by bytes. */
int front_name_cmp(const void *a, size_t a_n, const void *b, size_t b_n);

/* A name for a message: bytes that cannot be printed as \xNN, cut after some 70. Returns out. */
enum { FRONT_SHOWN = 96 };
const char *front_show(char out[FRONT_SHOWN], const void *s, size_t n);
/* A path for a message: its end, if it is very long. */
const char *front_show_path(char out[FRONT_SHOWN * 3], const char *path);
