/* Test help: makes GGUF files byte by byte, right or wrong ones. Header only; for *_test.c. */
#pragma once
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct build {
    unsigned char *b;
    size_t n, cap;
    size_t data_start; /* set by build_data */
    uint64_t next;     /* offset of the next tensor */
    uint64_t n_kv, n_tensors;
    uint32_t alignment;
};

static inline void build_bytes(struct build *w, const void *p, size_t n)
{
    if (w->n + n > w->cap) {
        w->cap = 2 * w->cap + n + 64;
        w->b = realloc(w->b, w->cap);
        assert(w->b);
    }
    if (p)
        memcpy(w->b + w->n, p, n);
    else
        memset(w->b + w->n, 0, n);
    w->n += n;
}
static inline void build_int(struct build *w, uint64_t v,
                             size_t bytes) /* this host is little-endian */
{
    build_bytes(w, &v, bytes);
}
static inline void build_str(struct build *w, const char *s)
{
    build_int(w, strlen(s), 8);
    build_bytes(w, s, strlen(s));
}

static inline void build_begin(struct build *w, uint32_t version)
{
    *w = (struct build){.alignment = 32};
    build_bytes(w, "GGUF", 4);
    build_int(w, version, 4);
    build_bytes(w, NULL, 16); /* the counts come at the end */
}
static inline void build_key(struct build *w, const char *key, uint32_t kind)
{
    build_str(w, key);
    build_int(w, kind, 4);
    w->n_kv++;
}
static inline void build_u32(struct build *w, const char *key, uint32_t v)
{
    build_key(w, key, 4);
    build_int(w, v, 4);
}
static inline void build_u16(struct build *w, const char *key, uint16_t v)
{
    build_key(w, key, 2);
    build_int(w, v, 2);
}
static inline void build_i32(struct build *w, const char *key, int32_t v)
{
    build_key(w, key, 5);
    build_bytes(w, &v, 4);
}
static inline void build_f32(struct build *w, const char *key, float v)
{
    build_key(w, key, 6);
    build_bytes(w, &v, 4);
}
static inline void build_bool(struct build *w, const char *key, int v)
{
    build_key(w, key, 7);
    build_int(w, (uint64_t)v, 1);
}
static inline void build_string(struct build *w, const char *key, const char *v)
{
    build_key(w, key, 8);
    build_str(w, v);
}
static inline void build_array(struct build *w, const char *key, uint32_t elem, uint64_t n)
{
    build_key(w, key, 9);
    build_int(w, elem, 4);
    build_int(w, n, 8);
}
/* One tensor info; bytes: of its data, so that the next one's offset is right. */
static inline void build_tensor(struct build *w, const char *name, uint32_t type, uint32_t n_dims,
                                const uint64_t *dims, uint64_t bytes)
{
    build_str(w, name);
    build_int(w, n_dims, 4);
    build_bytes(w, dims, 8 * n_dims);
    build_int(w, type, 4);
    build_int(w, w->next, 8);
    w->next += (bytes + w->alignment - 1) / w->alignment * w->alignment;
    w->n_tensors++;
}
/* Padding and zero data, and the counts. */
static inline void build_end(struct build *w)
{
    if (w->n_tensors && w->n % w->alignment)
        build_bytes(w, NULL, w->alignment - w->n % w->alignment);
    w->data_start = w->n;
    build_bytes(w, NULL, w->next);
    memcpy(w->b + 8, &w->n_tensors, 8);
    memcpy(w->b + 16, &w->n_kv, 8);
}
static inline void build_write(const struct build *w, const char *path)
{
    FILE *f = fopen(path, "wb");

    assert(f && fwrite(w->b, 1, w->n, f) == w->n && !fclose(f));
}
static inline void build_free(struct build *w)
{
    free(w->b);
    *w = (struct build){0};
}
