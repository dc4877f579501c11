/* Reads GGUF: one logical model file, which may lie in several shards. Versions 2 and 3, every
 * check of the format's rules, before anything is handed out.
 *
 * The front part (header, metadata, tensor infos) is read into memory with plain reads; tensor data
 * is never touched and nothing is mapped. After gguf_open a struct gguf is read-only: any number of
 * threads may look things up in it. All strings are borrowed until gguf_close.
 *
 * Messages of refusals are one line: "FILE: byte OFFSET: WHAT: FOUND (EXPECTED)". Bytes of names
 * that cannot be printed are shown as \xNN, long names are cut. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "shm/err.h"

struct gguf;
struct pack;

/* n bytes, and a NUL after them that n does not count. Metadata strings may hold NUL themselves. */
struct gguf_str {
    const char *s;
    size_t n;
};

enum gguf_kind {
    GGUF_U8 = 0,
    GGUF_I8 = 1,
    GGUF_U16 = 2,
    GGUF_I16 = 3,
    GGUF_U32 = 4,
    GGUF_I32 = 5,
    GGUF_F32 = 6,
    GGUF_BOOL = 7,
    GGUF_STRING = 8,
    GGUF_ARRAY = 9,
    GGUF_U64 = 10,
    GGUF_I64 = 11,
    GGUF_F64 = 12,
};

enum {
    GGUF_FRONT_MAX = 1 << 30,  /* most bytes of one shard's front part */
    GGUF_STRING_MAX = 1 << 26, /* most bytes of one string */
    GGUF_ALIGN_MAX = 1 << 16,  /* largest general.alignment */
};

/* Opens the file `path` and, if it is one shard of a split, all others (their names follow from
 * any one name). A folder that `conclave pack` made, or the dense file in it, opens the whole pack:
 * its experts file is then the last shard, and the tensors of routed experts are in it, in blocks
 * (gguf_pack). Hands over *out. 0 or a negative errno with one line in e. */
int gguf_open(const char *path, struct gguf **out, struct err *e);
/* The same from memory: one shard, the whole file or any part of its beginning; file_bytes is the
 * size that the file would have (>= n). `name` stands for the path in messages. The bytes are
 * copied. */
int gguf_parse(const char *name, const void *data, size_t n, uint64_t file_bytes, struct gguf **out,
               struct err *e);
/* NULL is allowed. Closes the shards' descriptors. */
void gguf_close(struct gguf *g);

/* --- shards ------------------------------------------------------------------------------------
 */
size_t gguf_n_shards(const struct gguf *g);
const char *gguf_shard_path(const struct gguf *g, size_t i);
int gguf_shard_fd(const struct gguf *g, size_t i); /* O_RDONLY, owned by g; -1 after gguf_parse */
uint64_t gguf_shard_bytes(const struct gguf *g, size_t i); /* size of the file when it was opened */
uint32_t gguf_version(const struct gguf *g);               /* of the first shard */
uint32_t gguf_alignment(const struct gguf *g, size_t i);
/* The pack whose experts file is the last shard, owned by g; NULL: none. A tensor of that shard has no
 * place in it (file_offset says nothing): coordinator/pack/pack.h knows where its rows are. */
const struct pack *gguf_pack(const struct gguf *g);

/* --- metadata (the first shard's) --------------------------------------------------------------
 */

/* Each: 0 the value is in *out; 1 no such key; -EINVAL the key holds something else (then gguf_why
 * writes the line). An integer getter takes every integer kind whose value fits; gguf_f32 takes f32
 * and f64 (rounded once) and, as a file's numbers are sometimes written so, integers. */
int gguf_u64(const struct gguf *g, const char *key, uint64_t *out);
int gguf_f32(const struct gguf *g, const char *key, float *out);
int gguf_bool(const struct gguf *g, const char *key, int *out);
int gguf_string(const struct gguf *g, const char *key, struct gguf_str *out);

struct gguf_array {
    enum gguf_kind kind; /* of the elements; never GGUF_ARRAY */
    size_t n;
    const unsigned char *data; /* opaque: use the getters */
    const uint32_t *index;     /* opaque: string arrays only */
};
int gguf_array(const struct gguf *g, const char *key, struct gguf_array *out);
/* Element i < a->n (asserted). A string array's element in constant time; for any other array the
 * empty string. */
struct gguf_str gguf_array_str(const struct gguf_array *a, size_t i);
/* Element i as a number: 0, or -EINVAL (not a number of that kind, or out of range). */
int gguf_array_u64(const struct gguf_array *a, size_t i, uint64_t *out);
int gguf_array_i64(const struct gguf_array *a, size_t i, int64_t *out);
int gguf_array_f32(const struct gguf_array *a, size_t i, float *out);
int gguf_array_bool(const struct gguf_array *a, size_t i, int *out);

/* Kind of the key's value; -1: no such key. */
int gguf_kind(const struct gguf *g, const char *key);
/* All keys, in file order. */
size_t gguf_n_keys(const struct gguf *g);
struct gguf_str gguf_key_at(const struct gguf *g, size_t i);
/* Key i and its value as they lie in the first shard: *n bytes from byte *at on. */
void gguf_key_bytes(const struct gguf *g, size_t i, uint64_t *at, uint64_t *n);

/* Writes the line for a key whose getter did not return 0: absent, or what was found and what was
 * wanted ("an integer from 1 to 512"). Returns -EINVAL. */
int gguf_why(const struct gguf *g, const char *key, const char *wanted, struct err *e);

/* n bytes of a file as one line for people: UTF-8 as it is, all other bytes and control characters
 * as \xNN, cut with "..." where cap (>= 8) ends. Returns out. */
const char *gguf_show(char *out, size_t cap, const char *s, size_t n);

/* --- tensors (of all shards, in file order) ----------------------------------------------------
 */
struct gguf_tensor {
    struct gguf_str name; /* 1 to 63 bytes of UTF-8, no control bytes */
    uint32_t type;        /* id, kernels/type/type.h knows it */
    uint32_t n_dims;
    uint64_t dims[4]; /* dims[0] contiguous; missing ones are 1, none is 0 */
    uint32_t shard;
    uint32_t info_at;     /* byte of its info in that shard, for messages */
    uint64_t file_offset; /* of its data in that shard: the data lies inside the file (not a pack's) */
    uint64_t bytes;
    uint64_t row_bytes; /* bytes of dims[0] values */
};
const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name); /* NULL: absent */
size_t gguf_n_tensors(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i); /* i < gguf_n_tensors */

/* Sizes that look wrong but harm nothing (bytes after the last tensor): one line each, for -v.
 * NULL after the last. */
const char *gguf_warning(const struct gguf *g, size_t i);
