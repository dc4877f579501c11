/* The file is laid out first (names, sizes, offsets), then written front to back at the disk's
 * speed, leaving nothing of it in the page cache: what is measured with it next begins cold. */
#define _GNU_SOURCE
#include "coordinator/cli/synth_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coordinator/cli/synth_fill.h"
#include "coordinator/model/alphabet.h"
#include "coordinator/model/gguf.h"
#include "kernels/type/type.h"
#include "shm/size.h"

enum {
    ALIGNMENT = 32,
    TENSORS_A_LAYER = 12,
    CHUNK = 8 << 20,   /* bytes of weights made at a time, less what is no whole block */
    WINDOW = 64 << 20, /* bytes written before the ones before them are waited for and forgotten */
};
#define CONTENTS "Random weights in a real model's shapes, for measurements."

struct tensor {
    char name[64];
    uint32_t type, n_dims;
    uint64_t dims[3], bytes, offset;
    double sd; /* 0: all ones, f32 */
};

struct front { /* the file's front part, grown as it is written */
    uint8_t *b;
    size_t n, cap;
    uint64_t n_keys;
    int failed; /* no memory */
};

struct layout {
    struct tensor *t; /* room for all */
    uint32_t n;
    uint64_t next; /* offset of the next one */
};

/* ---- the front part ---- */

static void put(struct front *f, const void *p, size_t n)
{
    if (f->n + n > f->cap) {
        size_t cap = 2 * f->cap + n + 4096;
        uint8_t *b = realloc(f->b, cap);
        if (!b) {
            f->failed = 1;
            return;
        }
        f->b = b;
        f->cap = cap;
    }
    memcpy(f->b + f->n, p, n);
    f->n += n;
}

static void put_u32(struct front *f, uint32_t v)
{
    put(f, &v, 4);
}

static void put_u64(struct front *f, uint64_t v)
{
    put(f, &v, 8);
}

static void put_text(struct front *f, const char *s, size_t n)
{
    put_u64(f, n);
    put(f, s, n);
}

static void key(struct front *f, const char *name, enum gguf_kind kind)
{
    put_text(f, name, strlen(name));
    put_u32(f, kind);
    f->n_keys++;
}

static void key_u32(struct front *f, const char *name, uint32_t v)
{
    key(f, name, GGUF_U32);
    put_u32(f, v);
}

static void key_f32(struct front *f, const char *name, float v)
{
    key(f, name, GGUF_F32);
    put(f, &v, 4);
}

static void key_text(struct front *f, const char *name, const char *v)
{
    key(f, name, GGUF_STRING);
    put_text(f, v, strlen(v));
}

static void key_array(struct front *f, const char *name, enum gguf_kind kind, uint64_t n)
{
    key(f, name, GGUF_ARRAY);
    put_u32(f, kind);
    put_u64(f, n);
}

/* llama.cpp's number for "mostly this type"; it shows it and does nothing else with it. */
static uint32_t file_type(uint32_t type)
{
    static const struct {
        uint32_t type, number;
    } known[] = {{W_F32, 0}, {W_F16, 1}, {W_Q8_0, 7}, {W_Q4_K, 15}, {W_Q6_K, 18}, {W_BF16, 32}};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].type == type)
            return known[i].number;
    return 0;
}

static void keys_of_shape(struct front *f, const struct synth_shape *s)
{
    char name[128];

    snprintf(name, sizeof name, "synthetic qwen3moe, %u layers of %u experts, seed %" PRIu64,
             s->layers, s->experts, s->seed);
    key_text(f, "general.architecture", "qwen3moe");
    key_text(f, "general.type", "model");
    key_text(f, "general.name", name);
    key_text(f, "general.description", CONTENTS);
    key_u32(f, "general.alignment", ALIGNMENT);
    key_u32(f, "general.quantization_version", 2);
    key_u32(f, "general.file_type", file_type(s->type));
    key_u32(f, "qwen3moe.block_count", s->layers);
    key_u32(f, "qwen3moe.context_length", s->ctx);
    key_u32(f, "qwen3moe.embedding_length", s->embd);
    key_u32(f, "qwen3moe.feed_forward_length", s->ff * s->used);
    key_u32(f, "qwen3moe.expert_feed_forward_length", s->ff);
    key_u32(f, "qwen3moe.expert_count", s->experts);
    key_u32(f, "qwen3moe.expert_used_count", s->used);
    key_u32(f, "qwen3moe.attention.head_count", s->heads);
    key_u32(f, "qwen3moe.attention.head_count_kv", s->kv_heads);
    key_u32(f, "qwen3moe.attention.key_length", s->head_dim);
    key_u32(f, "qwen3moe.attention.value_length", s->head_dim);
    key_f32(f, "qwen3moe.attention.layer_norm_rms_epsilon", 1e-6f);
    key_f32(f, "qwen3moe.rope.freq_base", 1e6f);
}

static void made_tokenizer(struct front *f, uint32_t vocab)
{
    char text[32];

    key_text(f, "tokenizer.ggml.model", "gpt2");
    key_text(f, "tokenizer.ggml.pre", "qwen2");
    key_array(f, "tokenizer.ggml.tokens", GGUF_STRING, vocab);
    for (uint32_t i = 0; i < vocab; i++) {
        if (i < 256)
            put_text(f, text, alphabet_of_byte((unsigned char)i, text));
        else if (i == 256)
            put_text(f, "<|endoftext|>", 13);
        else
            put_text(f, text, (size_t)snprintf(text, sizeof text, "<|unused%u|>", i));
    }
    key_array(f, "tokenizer.ggml.token_type", GGUF_I32, vocab);
    for (uint32_t i = 0; i < vocab; i++)
        put_u32(f, i < 256 ? 1 : i == 256 ? 3 : 5); /* normal, control, unused */
    key_array(f, "tokenizer.ggml.merges", GGUF_STRING, 0);
    key_u32(f, "tokenizer.ggml.eos_token_id", 256);
    key(f, "tokenizer.ggml.add_bos_token", GGUF_BOOL);
    put(f, "", 1);
}

/* One number of that kind, from the wider form that the reader gives. */
static int put_number(struct front *f, enum gguf_kind kind, uint64_t u, int64_t i, float x)
{
    static const uint8_t size[] = {[GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_U16] = 2, [GGUF_I16] = 2,
                                   [GGUF_U32] = 4, [GGUF_I32] = 4, [GGUF_U64] = 8, [GGUF_I64] = 8};

    if (kind == GGUF_F32)
        put(f, &x, 4);
    else if (kind == GGUF_BOOL)
        put(f, u ? "\1" : "", 1);
    else if ((size_t)kind < sizeof size && size[kind]) /* little-endian: the low bytes come first */
        put(f, kind == GGUF_U64 ? (const void *)&u : &i, size[kind]);
    else
        return -1;
    return 0;
}

static int copy_array(struct front *f, const struct gguf_array *a)
{
    put_u32(f, a->kind);
    put_u64(f, a->n);
    for (size_t k = 0; k < a->n; k++) {
        struct gguf_str s;
        uint64_t u = 0;
        int64_t i = 0;
        float x = 0;
        int b = 0;

        if (a->kind == GGUF_STRING) {
            s = gguf_array_str(a, k);
            put_text(f, s.s, s.n);
            continue;
        }
        if (a->kind == GGUF_F32)
            gguf_array_f32(a, k, &x);
        else if (a->kind == GGUF_BOOL)
            gguf_array_bool(a, k, &b);
        else if (a->kind == GGUF_U64)
            gguf_array_u64(a, k, &u);
        else
            gguf_array_i64(a, k, &i);
        if (put_number(f, a->kind, u | (uint64_t)b, i, x))
            return -1;
    }
    return 0;
}

static int copy_key(struct front *f, const struct gguf *g, const char *name)
{
    enum gguf_kind kind = (enum gguf_kind)gguf_kind(g, name);
    struct gguf_array a;
    struct gguf_str s;
    uint64_t u = 0;
    float x = 0;
    int b = 0;

    key(f, name, kind);
    if (kind == GGUF_ARRAY)
        return gguf_array(g, name, &a) ? -1 : copy_array(f, &a);
    if (kind == GGUF_STRING) {
        if (gguf_string(g, name, &s))
            return -1;
        put_text(f, s.s, s.n);
        return 0;
    }
    if (kind == GGUF_F32    ? gguf_f32(g, name, &x)
        : kind == GGUF_BOOL ? gguf_bool(g, name, &b)
                            : gguf_u64(g, name, &u))
        return -1;
    return put_number(f, kind, u | (uint64_t)b, (int64_t)u, x);
}

/* Every key of the file that begins with "tokenizer.". */
static int copy_tokenizer(struct front *f, const struct synth_shape *s, struct err *e)
{
    struct gguf *g = NULL;
    struct gguf_array tokens;
    int rc = gguf_open(s->tokenizer, &g, e);

    if (rc)
        return rc;
    if (gguf_array(g, "tokenizer.ggml.tokens", &tokens))
        rc = err_set(e, -EINVAL, "%s: no tokenizer.ggml.tokens: not a file with a tokenizer",
                     s->tokenizer);
    else if (tokens.n != s->vocab)
        rc = err_set(e, -EINVAL,
                     "%s: its tokenizer has %zu tokens, --vocab says %u: leave --vocab out",
                     s->tokenizer, tokens.n, s->vocab);
    for (size_t i = 0; i < gguf_n_keys(g) && !rc; i++) {
        struct gguf_str k = gguf_key_at(g, i);
        if (!strncmp(k.s, "tokenizer.", 10) && copy_key(f, g, k.s))
            rc = err_set(e, -EINVAL, "%s: key %s cannot be copied", s->tokenizer, k.s);
    }
    gguf_close(g);
    return rc;
}

/* ---- the tensors ---- */

__attribute__((format(printf, 8, 9))) static int add(struct layout *l, uint32_t type, uint64_t cols,
                                                     uint64_t rows, uint64_t experts, double sd,
                                                     struct err *e, const char *fmt, ...)
{
    struct tensor *t = &l->t[l->n++];
    uint64_t row_bytes;
    va_list ap;

    *t = (struct tensor){.type = sd > 0 ? type : W_F32, .sd = sd, .dims = {cols, rows, experts}};
    va_start(ap, fmt);
    vsnprintf(t->name, sizeof t->name, fmt, ap);
    va_end(ap);
    t->n_dims = experts > 1 ? 3 : rows > 1 ? 2 : 1;
    if (type_row_bytes(t->type, cols, &row_bytes))
        return err_set(e, -EINVAL,
                       "%s: rows of %" PRIu64 " values are no whole blocks of type %s (%u values)",
                       t->name, cols, type_info(t->type)->name, type_info(t->type)->block_values);
    if (u64_mul(row_bytes, rows, &t->bytes) || u64_mul(t->bytes, experts, &t->bytes) ||
        u64_add(l->next, t->bytes, &l->next) || l->next > INT64_MAX / 2)
        return err_set(e, -EOVERFLOW, "%s: the file would be too large", t->name);
    t->offset = l->next - t->bytes;
    l->next = round_up(l->next, ALIGNMENT);
    return 0;
}

static int add_layer(struct layout *l, const struct synth_shape *s, uint32_t i, struct err *e)
{
    uint64_t q = (uint64_t)s->heads * s->head_dim, kv = (uint64_t)s->kv_heads * s->head_dim;
    double by_embd = 1 / sqrt(s->embd), by_q = 1 / sqrt((double)q), by_ff = 1 / sqrt(s->ff);
    int rc = add(l, 0, s->embd, 1, 1, 0, e, "blk.%u.attn_norm.weight", i);

    rc = rc ? rc : add(l, s->trunk_type, s->embd, q, 1, by_embd, e, "blk.%u.attn_q.weight", i);
    rc = rc ? rc : add(l, s->trunk_type, s->embd, kv, 1, by_embd, e, "blk.%u.attn_k.weight", i);
    rc = rc ? rc : add(l, s->trunk_type, s->embd, kv, 1, by_embd, e, "blk.%u.attn_v.weight", i);
    rc = rc ? rc : add(l, 0, s->head_dim, 1, 1, 0, e, "blk.%u.attn_q_norm.weight", i);
    rc = rc ? rc : add(l, 0, s->head_dim, 1, 1, 0, e, "blk.%u.attn_k_norm.weight", i);
    rc = rc ? rc : add(l, s->trunk_type, q, s->embd, 1, by_q, e, "blk.%u.attn_output.weight", i);
    rc = rc ? rc : add(l, 0, s->embd, 1, 1, 0, e, "blk.%u.ffn_norm.weight", i);
    rc = rc ? rc
            : add(l, W_F32, s->embd, s->experts, 1, by_embd, e, "blk.%u.ffn_gate_inp.weight", i);
    rc = rc ? rc
            : add(l, s->type, s->embd, s->ff, s->experts, by_embd, e, "blk.%u.ffn_gate_exps.weight",
                  i);
    rc = rc ? rc
            : add(l, s->type, s->embd, s->ff, s->experts, by_embd, e, "blk.%u.ffn_up_exps.weight",
                  i);
    rc = rc ? rc
            : add(l, s->type, s->ff, s->embd, s->experts, by_ff, e, "blk.%u.ffn_down_exps.weight",
                  i);
    return rc;
}

static int lay_out(struct layout *l, const struct synth_shape *s, struct err *e)
{
    int rc;

    l->t = calloc(3 + (size_t)s->layers * TENSORS_A_LAYER, sizeof *l->t);
    if (!l->t)
        return err_set(e, -ENOMEM, "no memory for the tensors of %u layers", s->layers);
    /* an embedding is looked up, not multiplied: its values are of the size of a normed vector's */
    rc = add(l, s->trunk_type, s->embd, s->vocab, 1, 1, e, "token_embd.weight");
    for (uint32_t i = 0; i < s->layers && !rc; i++)
        rc = add_layer(l, s, i, e);
    rc = rc ? rc : add(l, 0, s->embd, 1, 1, 0, e, "output_norm.weight");
    rc = rc ? rc
            : add(l, s->trunk_type, s->embd, s->vocab, 1, 1 / sqrt(s->embd), e, "output.weight");
    return rc;
}

static int make_front(struct front *f, const struct layout *l, const struct synth_shape *s,
                      struct err *e)
{
    int rc = 0;

    put(f, "GGUF", 4);
    put_u32(f, 3);
    put_u64(f, l->n);
    put_u64(f, 0); /* number of keys, below */
    keys_of_shape(f, s);
    if (s->tokenizer)
        rc = copy_tokenizer(f, s, e);
    else
        made_tokenizer(f, s->vocab);
    for (uint32_t i = 0; i < l->n; i++) {
        const struct tensor *t = &l->t[i];
        put_text(f, t->name, strlen(t->name));
        put_u32(f, t->n_dims);
        put(f, t->dims, t->n_dims * sizeof *t->dims);
        put_u32(f, t->type);
        put_u64(f, t->offset);
    }
    while (f->n % ALIGNMENT && !f->failed)
        put(f, "", 1);
    if (!rc && f->failed)
        rc = err_set(e, -ENOMEM, "no memory for the front part of the file");
    if (!rc)
        memcpy(f->b + 16, &f->n_keys, 8);
    return rc;
}

/* ---- writing ---- */

struct out {
    int fd;
    const char *path;
    uint64_t at, forgotten; /* bytes written; of these, on the disk and out of the page cache */
};

static int out_write(struct out *o, const void *data, size_t n, struct err *e)
{
    const uint8_t *p = data;

    while (n) {
        ssize_t w = write(o->fd, p, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return err_set(e, w ? -errno : -EIO, "%s: cannot write at byte %" PRIu64 ": %s",
                           o->path, o->at, strerror(w ? errno : EIO));
        p += w;
        n -= (size_t)w;
        o->at += (uint64_t)w;
    }
    while (o->at - o->forgotten >= 2 * (uint64_t)WINDOW) {
        sync_file_range(o->fd, (off_t)(o->forgotten + WINDOW), WINDOW, SYNC_FILE_RANGE_WRITE);
        sync_file_range(o->fd, (off_t)o->forgotten, WINDOW,
                        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                            SYNC_FILE_RANGE_WAIT_AFTER);
        posix_fadvise(o->fd, (off_t)o->forgotten, WINDOW, POSIX_FADV_DONTNEED);
        o->forgotten += WINDOW;
    }
    return 0;
}

static int write_tensor(struct out *o, const struct tensor *t, uint64_t seed, uint8_t *room,
                        struct err *e)
{
    static const uint8_t zeros[ALIGNMENT];
    struct synth_fill f;
    size_t whole;
    int rc;

    if (t->sd > 0) {
        rc = synth_fill_begin(&f, t->type, t->sd, seed, e);
        if (rc)
            return rc;
    }
    whole = CHUNK - CHUNK % (t->sd > 0 ? f.block_bytes : 4);
    for (uint64_t left = t->bytes; left;) {
        size_t n = left < whole ? (size_t)left : whole;
        if (t->sd > 0)
            synth_fill_blocks(&f, room, n);
        else
            for (size_t i = 0; i < n; i += 4)
                memcpy(room + i, &(float){1}, 4);
        rc = out_write(o, room, n, e);
        if (rc)
            return rc;
        left -= n;
    }
    return out_write(o, zeros, round_up(t->bytes, ALIGNMENT) - t->bytes, e);
}

static int write_all(struct out *o, const struct front *f, const struct layout *l, uint64_t seed,
                     struct err *e)
{
    uint8_t *room = malloc(CHUNK);
    int rc;

    if (!room)
        return err_set(e, -ENOMEM, "no memory to make weights in");
    /* all of it or nothing: a full disk is found before anything is made */
    rc = fallocate(o->fd, 0, 0, (off_t)(f->n + l->next)) && errno == ENOSPC
             ? err_set(e, -ENOSPC, "%s: no room for %.1f GB on this disk", o->path,
                       (double)(f->n + l->next) / 1e9)
             : 0;
    rc = rc ? rc : out_write(o, f->b, f->n, e);
    for (uint32_t i = 0; i < l->n && !rc; i++)
        rc = write_tensor(o, &l->t[i], seed * 0x9E3779B97F4A7C15ull + i, room, e);
    if (!rc && fsync(o->fd))
        rc = err_set(e, -errno, "%s: cannot write to the disk: %s", o->path, strerror(errno));
    if (!rc)
        posix_fadvise(o->fd, 0, 0, POSIX_FADV_DONTNEED);
    free(room);
    return rc;
}

static int write_file(const char *path, const struct front *f, const struct layout *l,
                      uint64_t seed, struct err *e)
{
    struct out o = {.fd = -1};
    char *part = NULL;
    int rc;

    if (asprintf(&part, "%s.part", path) < 0)
        return err_set(e, -ENOMEM, "no memory for a file's name");
    o.path = part;
    o.fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (o.fd < 0) {
        rc = err_set(e, -errno, "%s: cannot create it: %s", part, strerror(errno));
        free(part);
        return rc;
    }
    rc = write_all(&o, f, l, seed, e);
    if (close(o.fd) && !rc)
        rc = err_set(e, -errno, "%s: cannot write to the disk: %s", part, strerror(errno));
    if (!rc && rename(part, path))
        rc = err_set(e, -errno, "%s: cannot give it this name: %s", path, strerror(errno));
    if (rc)
        unlink(part);
    free(part);
    return rc;
}

int synth_write(const struct synth_shape *s, const char *path, uint64_t *bytes, struct err *e)
{
    struct layout l = {0};
    struct front f = {0};
    int rc = lay_out(&l, s, e);

    rc = rc ? rc : make_front(&f, &l, s, e);
    rc = rc ? rc : write_file(path, &f, &l, s->seed, e);
    *bytes = f.n + l.next;
    free(f.b);
    free(l.t);
    return rc;
}
