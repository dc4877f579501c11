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
#include <sys/stat.h>
#include <unistd.h>

#include "coordinator/cli/synth_fill.h"
#include "coordinator/cli/synth_parts.h"
#include "coordinator/model/alphabet.h"
#include "coordinator/model/gguf.h"
#include "kernels/num.h"
#include "kernels/type/type.h"
#include "shm/size.h"

enum {
    ALIGNMENT = 32,
    TENSORS_A_LAYER = 12,
    CHUNK = 8 << 20,   /* bytes of weights made at a time, less what is no whole block */
    WINDOW = 64 << 20, /* bytes written before the ones before them are waited for and forgotten */
};
#define ROPE_BASE 1e6f
#define CONTENTS "Random weights in a real model's shapes, for measurements."

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

void synth_put_u32(struct front *f, uint32_t v)
{
    put(f, &v, 4);
}

void synth_put_u64(struct front *f, uint64_t v)
{
    put(f, &v, 8);
}

static void put_text(struct front *f, const char *s, size_t n)
{
    synth_put_u64(f, n);
    put(f, s, n);
}

void synth_key(struct front *f, const char *name, enum gguf_kind kind)
{
    put_text(f, name, strlen(name));
    synth_put_u32(f, kind);
    f->n_keys++;
}

void synth_key_u32(struct front *f, const char *name, uint32_t v)
{
    synth_key(f, name, GGUF_U32);
    synth_put_u32(f, v);
}

void synth_key_f32(struct front *f, const char *name, float v)
{
    synth_key(f, name, GGUF_F32);
    put(f, &v, 4);
}

void synth_key_text(struct front *f, const char *name, const char *v)
{
    synth_key(f, name, GGUF_STRING);
    put_text(f, v, strlen(v));
}

void synth_key_array(struct front *f, const char *name, enum gguf_kind kind, uint64_t n)
{
    synth_key(f, name, GGUF_ARRAY);
    synth_put_u32(f, kind);
    synth_put_u64(f, n);
}

/* llama.cpp's number for "mostly this type"; it shows it and does nothing else with it. */
uint32_t synth_file_type(uint32_t type)
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

    snprintf(name, sizeof name, "synthetic qwen3moe, %s, %u layers of %u experts, seed %" PRIu64,
             synth_preset_name(s->preset), s->layers, s->experts, s->seed);
    synth_key_text(f, "general.architecture", "qwen3moe");
    synth_key_text(f, "general.type", "model");
    synth_key_text(f, "general.name", name);
    synth_key_text(f, "general.description", CONTENTS);
    synth_key_u32(f, "general.alignment", ALIGNMENT);
    synth_key_u32(f, "general.quantization_version", 2);
    synth_key_u32(f, "general.file_type", synth_file_type(s->type));
    synth_key_u32(f, "qwen3moe.block_count", s->layers);
    synth_key_u32(f, "qwen3moe.context_length", s->ctx);
    synth_key_u32(f, "qwen3moe.embedding_length", s->embd);
    synth_key_u32(f, "qwen3moe.feed_forward_length", s->ff * s->used);
    synth_key_u32(f, "qwen3moe.expert_feed_forward_length", s->ff);
    synth_key_u32(f, "qwen3moe.expert_count", s->experts);
    synth_key_u32(f, "qwen3moe.expert_used_count", s->used);
    synth_key_u32(f, "qwen3moe.attention.head_count", s->heads);
    synth_key_u32(f, "qwen3moe.attention.head_count_kv", s->kv_heads);
    synth_key_u32(f, "qwen3moe.attention.key_length", s->head_dim);
    synth_key_u32(f, "qwen3moe.attention.value_length", s->head_dim);
    synth_key_f32(f, "qwen3moe.attention.layer_norm_rms_epsilon", 1e-6f);
    synth_key_f32(f, "qwen3moe.rope.freq_base", ROPE_BASE);
}

static void made_tokenizer(struct front *f, uint32_t vocab)
{
    char text[32];

    synth_key_text(f, "tokenizer.ggml.model", "gpt2");
    synth_key_text(f, "tokenizer.ggml.pre", "qwen2");
    synth_key_array(f, "tokenizer.ggml.tokens", GGUF_STRING, vocab);
    for (uint32_t i = 0; i < vocab; i++) {
        if (i < 256)
            put_text(f, text, alphabet_of_byte((unsigned char)i, text));
        else if (i == 256)
            put_text(f, "<|endoftext|>", 13);
        else
            put_text(f, text, (size_t)snprintf(text, sizeof text, "<|unused%u|>", i));
    }
    synth_key_array(f, "tokenizer.ggml.token_type", GGUF_I32, vocab);
    for (uint32_t i = 0; i < vocab; i++)
        synth_put_u32(f, i < 256 ? 1 : i == 256 ? 3 : 5); /* normal, control, unused */
    synth_key_array(f, "tokenizer.ggml.merges", GGUF_STRING, 0);
    synth_key_u32(f, "tokenizer.ggml.eos_token_id", 256);
    synth_key(f, "tokenizer.ggml.add_bos_token", GGUF_BOOL);
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
    synth_put_u32(f, a->kind);
    synth_put_u64(f, a->n);
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

    synth_key(f, name, kind);
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

/* Deviations of what enters the residual, where the embedding's own part has 1. */
#define CONST_VALUE 2.0    /* its const part */
#define MOE_RMS 0.27       /* top-k's sum over experts whose matrices keep a vector's length */
#define MOE_TOTAL 0.5      /* all layers' experts together */
#define ATTENTION_PART 0.5 /* of a running mean, all layers together */
#define QK_NOISE 0.03 /* of q's and k's values: a token's own part against the const columns' */

int synth_add(struct layout *l, struct tensor t, uint32_t type, uint64_t cols, uint64_t rows, uint64_t experts,
              struct err *e, const char *fmt, ...)
{
    uint64_t row_bytes;
    va_list ap;

    t.type = type;
    t.dims[0] = cols;
    t.dims[1] = rows;
    t.dims[2] = experts;
    va_start(ap, fmt);
    vsnprintf(t.name, sizeof t.name, fmt, ap);
    va_end(ap);
    t.n_dims = experts > 1 ? 3 : rows > 1 ? 2 : 1;
    if (type_row_bytes(t.type, cols, &row_bytes))
        return err_set(e, -EINVAL,
                       "%s: rows of %" PRIu64 " values are no whole blocks of type %s (%u values)",
                       t.name, cols, type_info(t.type)->name, type_info(t.type)->block_values);
    if (u64_mul(row_bytes, rows, &t.bytes) || u64_mul(t.bytes, experts, &t.bytes) ||
        u64_add(l->next, t.bytes, &l->next) || l->next > INT64_MAX / 2)
        return err_set(e, -EOVERFLOW, "%s: the file would be too large", t.name);
    t.offset = l->next - t.bytes;
    l->next = round_up(l->next, ALIGNMENT);
    l->t[l->n++] = t;
    return 0;
}

static int add_ones(struct layout *l, uint64_t n, struct err *e, const char *fmt, uint32_t i)
{
    char name[64];

    snprintf(name, sizeof name, fmt, i);
    return synth_add(l, (struct tensor){.making = VALUE, .value = 1}, W_F32, n, 1, 1, e, "%s", name);
}

static int add_attention(struct layout *l, const struct synth_shape *s,
                         const struct synth_routing *r, uint32_t i, struct err *e)
{
    uint64_t q = (uint64_t)s->heads * s->head_dim, kv = (uint64_t)s->kv_heads * s->head_dim;
    double by_embd = 1 / sqrt(s->embd), share = ATTENTION_PART / sqrt(s->layers);
    struct tensor norm = {.making = r->n_const ? QK_NORM : VALUE, .value = 1};
    struct tensor qk = {.sd = by_embd, .by_col = {1, 1, 1}, .by_row = {1, 1, 1}};
    struct tensor v = {.sd = 1 / sqrt(s->embd - r->n_const - r->n_slow),
                       .cols_parted = 1,
                       .by_col = {0, 0, 1},
                       .by_row = {1, 1, 1}};
    struct tensor o = {.sd = 1 / sqrt((double)q),
                       .rows_parted = 1,
                       .by_col = {1, 1, 1},
                       .by_row = {0, i ? 0 : 1 / r->mean_rms, share}};
    int rc;

    if (r->n_const) {
        qk.cols_parted = 1;
        qk.embedded = by_embd;
        qk.by_col[SLOW] = 0;
        qk.by_col[OWN] =
            QK_NOISE * r->n_const * CONST_VALUE / sqrt(s->embd - r->n_const - r->n_slow);
    }
    rc = synth_add(l, qk, s->trunk_type, s->embd, q, 1, e, "blk.%u.attn_q.weight", i);
    rc = rc ? rc : synth_add(l, qk, s->trunk_type, s->embd, kv, 1, e, "blk.%u.attn_k.weight", i);
    rc = rc ? rc : synth_add(l, v, s->trunk_type, s->embd, kv, 1, e, "blk.%u.attn_v.weight", i);
    rc = rc ? rc : synth_add(l, norm, W_F32, s->head_dim, 1, 1, e, "blk.%u.attn_q_norm.weight", i);
    rc = rc ? rc : synth_add(l, norm, W_F32, s->head_dim, 1, 1, e, "blk.%u.attn_k_norm.weight", i);
    rc = rc ? rc : synth_add(l, o, s->trunk_type, q, s->embd, 1, e, "blk.%u.attn_output.weight", i);
    return rc;
}

static int add_experts(struct layout *l, const struct synth_shape *s, uint32_t i, struct err *e)
{
    struct tensor up = {.sd = 1 / sqrt(s->embd), .by_col = {1, 1, 1}, .by_row = {1, 1, 1}};
    struct tensor down = {.sd = MOE_TOTAL / MOE_RMS / sqrt(s->layers) / sqrt(s->ff),
                          .rows_parted = 1,
                          .by_col = {1, 1, 1},
                          .by_row = {0, 0, 1}};
    int rc = synth_add(l, (struct tensor){.making = ROUTER}, W_F32, s->embd, s->experts, 1, e,
                 "blk.%u.ffn_gate_inp.weight", i);

    rc = rc ? rc
            : synth_add(l, up, s->type, s->embd, s->ff, s->experts, e, "blk.%u.ffn_gate_exps.weight", i);
    rc = rc ? rc
            : synth_add(l, up, s->type, s->embd, s->ff, s->experts, e, "blk.%u.ffn_up_exps.weight", i);
    rc = rc ? rc
            : synth_add(l, down, s->down_type, s->ff, s->embd, s->experts, e,
                  "blk.%u.ffn_down_exps.weight", i);
    return rc;
}

static int lay_out(struct layout *l, const struct synth_shape *s, const struct synth_routing *r,
                   struct err *e)
{
    /* an embedding is looked up, not multiplied: its values are of the size of a normed vector's */
    struct tensor embd = {.sd = 1,
                          .cols_parted = 1,
                          .by_col = {0, 0, 1},
                          .by_row = {1, 1, 1},
                          .embedded = CONST_VALUE};
    /* the head looks at the token's own part: the rest hardly changes from one to the next */
    struct tensor head = {.sd = 1 / sqrt(s->embd - r->n_const - r->n_slow),
                          .cols_parted = 1,
                          .by_col = {0, 0, 1},
                          .by_row = {1, 1, 1}};
    int rc;

    l->t = calloc(3 + (size_t)s->layers * TENSORS_A_LAYER, sizeof *l->t);
    if (!l->t)
        return err_set(e, -ENOMEM, "no memory for the tensors of %u layers", s->layers);
    rc = synth_add(l, embd, s->trunk_type, s->embd, s->vocab, 1, e, "token_embd.weight");
    for (uint32_t i = 0; i < s->layers && !rc; i++) {
        rc = add_ones(l, s->embd, e, "blk.%u.attn_norm.weight", i);
        rc = rc ? rc : add_attention(l, s, r, i, e);
        rc = rc ? rc : add_ones(l, s->embd, e, "blk.%u.ffn_norm.weight", i);
        rc = rc ? rc : add_experts(l, s, i, e);
    }
    rc = rc ? rc : add_ones(l, s->embd, e, "output_norm.weight", 0);
    rc = rc ? rc : synth_add(l, head, s->trunk_type, s->embd, s->vocab, 1, e, "output.weight");
    return rc;
}

static int make_front(struct front *f, const struct layout *l, const struct synth_shape *s,
                      struct err *e)
{
    int rc = 0;

    put(f, "GGUF", 4);
    synth_put_u32(f, 3);
    synth_put_u64(f, l->n);
    synth_put_u64(f, 0); /* number of keys, below */
    if (s->glm5next)
        synth_glm_keys(f, s);
    else if (s->qwen4exp)
        synth_qwen4_keys(f, s);
    else
        keys_of_shape(f, s);
    if (s->tokenizer)
        rc = copy_tokenizer(f, s, e);
    else
        made_tokenizer(f, s->vocab);
    for (uint32_t i = 0; i < l->n; i++) {
        const struct tensor *t = &l->t[i];
        put_text(f, t->name, strlen(t->name));
        synth_put_u32(f, t->n_dims);
        put(f, t->dims, t->n_dims * sizeof *t->dims);
        synth_put_u32(f, t->type);
        synth_put_u64(f, t->offset);
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

/* A tensor's rows as runs of columns of one part; a part that is empty has no run. */
struct rows {
    uint64_t row_end[PARTS];
    size_t run_bytes[PARTS];
    size_t bytes;                         /* a row's */
    struct synth_fill fill[PARTS][PARTS]; /* by row, by column */
};

static int rows_begin(struct rows *w, const struct tensor *t, const struct synth_routing *r,
                      uint64_t seed, struct err *e)
{
    uint64_t cols[PARTS] = {r->n_const, r->n_slow, t->dims[0] - r->n_const - r->n_slow};
    uint64_t bytes;
    int rc = 0;

    memset(w, 0, sizeof *w);
    if (!t->cols_parted) {
        cols[OWN] = t->dims[0];
        cols[CONST] = cols[SLOW] = 0;
    }
    for (int c = 0; c < PARTS && !rc; c++) {
        rc = type_row_bytes(t->type, cols[c], &bytes)
                 ? err_set(e, -EINVAL, "%s: %" PRIu64 " columns are no whole blocks", t->name,
                           cols[c])
                 : 0;
        w->run_bytes[c] = bytes;
        w->bytes += bytes;
    }
    w->row_end[CONST] = t->rows_parted ? r->n_const : 0;
    w->row_end[SLOW] = t->rows_parted ? r->n_const + r->n_slow : 0;
    for (int i = 0; i < OWN && t->each; i++)
        w->row_end[i] = t->row_end[i];
    w->row_end[OWN] = t->dims[1];
    for (int i = 0; i < PARTS; i++)
        for (int c = 0; c < PARTS && !rc; c++)
            rc = c == CONST && t->embedded != 0
                     ? synth_fill_same(&w->fill[i][c], t->type, t->embedded, e)
                     : synth_fill_begin(
                           &w->fill[i][c], t->type, t->sd * (t->each ? t->by[i][c] : t->by_row[i] * t->by_col[c]),
                           seed + (uint64_t)(PARTS * i + c + 1) * 0xD1B54A32D192ED03ull, e);
    return rc;
}

/* n whole rows, the first of them row `at` of its matrix. */
static void rows_fill(struct rows *w, uint64_t at, uint8_t *out, size_t n, uint64_t rows)
{
    for (; n--; at = at + 1 < rows ? at + 1 : 0) {
        int i = at < w->row_end[CONST] ? CONST : at < w->row_end[SLOW] ? SLOW : OWN;
        for (int c = 0; c < PARTS; out += w->run_bytes[c++])
            synth_fill_blocks(&w->fill[i][c], out, w->run_bytes[c]);
    }
}

static int write_random(struct out *o, const struct tensor *t, const struct synth_routing *r,
                        uint64_t seed, uint8_t *room, struct err *e)
{
    struct rows *w = malloc(sizeof *w);
    uint64_t row = 0, n_rows = t->dims[1] * t->dims[2];
    int rc = w ? rows_begin(w, t, r, seed, e) : err_set(e, -ENOMEM, "no memory for a row");

    if (!rc && w->bytes > CHUNK)
        rc = err_set(e, -EINVAL, "%s: a row of %zu bytes is too long", t->name, w->bytes);
    while (!rc && row < n_rows) {
        size_t n = CHUNK / w->bytes;
        n = n_rows - row < n ? (size_t)(n_rows - row) : n;
        rows_fill(w, row % t->dims[1], room, n, t->dims[1]);
        rc = out_write(o, room, n * w->bytes, e);
        row += n;
    }
    free(w);
    return rc;
}

/* Scores of deviation 1 from a token's own part, r->slow from the slow part, and an expert's bias.
 */
static void router_row(const struct synth_routing *r, uint32_t embd, struct synth_fill own[PARTS],
                       double bias, float *row)
{
    for (uint32_t i = 0; i < r->n_const; i++)
        row[i] = (float)(bias / (r->n_const * CONST_VALUE));
    synth_fill_blocks(&own[SLOW], row + r->n_const, r->n_slow * sizeof *row);
    synth_fill_blocks(&own[OWN], row + r->n_const + r->n_slow,
                      (embd - r->n_const - r->n_slow) * sizeof *row);
}

/* A sum of twelve: near enough to normal, and the same on every machine. */
static double normal(struct synth_fill *f)
{
    float x[12];
    double sum = 0;

    synth_fill_blocks(f, x, sizeof x);
    for (int i = 0; i < 12; i++)
        sum += x[i];
    return sum;
}

static int write_router(struct out *o, const struct tensor *t, const struct synth_routing *r,
                        uint64_t seed, uint8_t *room, struct err *e)
{
    uint32_t embd = (uint32_t)t->dims[0];
    struct synth_fill f[PARTS];
    double sd[PARTS] = {r->bias / sqrt(12), r->n_slow ? r->slow / sqrt(r->n_slow) : 0,
                        1 / sqrt(embd - r->n_const - r->n_slow)};
    int rc = 0;

    for (int c = 0; c < PARTS && !rc; c++)
        rc = synth_fill_begin(&f[c], W_F32, sd[c], seed + (uint64_t)c * 0xD1B54A32D192ED03ull, e);
    for (uint64_t k = 0; k < t->dims[1] && !rc; k++) {
        router_row(r, embd, f, normal(&f[CONST]), (float *)(void *)room);
        rc = out_write(o, room, embd * sizeof(float), e);
    }
    return rc;
}

static int write_vector(struct out *o, const struct tensor *t, const struct synth_routing *r,
                        uint8_t *room, struct err *e)
{
    float *x = (float *)(void *)room;
    size_t n = t->dims[0] * t->dims[1] * t->dims[2];

    for (size_t i = 0; i < n; i++)
        x[i] = (float)(t->making == VALUE ? t->value : r->gain_rest);
    for (int p = 0; p < SYNTH_PAIRS && t->making == QK_NORM; p++)
        x[r->pair[p]] = x[r->pair[p] + n / 2] = (float)r->gain[p];
    return out_write(o, x, n * sizeof *x, e);
}

/* The rows of a RANDOM matrix, each one place up. */
static int write_successor(struct out *o, const struct tensor *t, const struct synth_routing *r, uint64_t seed,
                           uint8_t *room, struct err *e)
{
    struct rows *w = malloc(sizeof *w);
    uint8_t *first = NULL;
    int rc = w ? rows_begin(w, t, r, seed, e) : err_set(e, -ENOMEM, "no memory for a row");

    if (!rc && w->bytes > CHUNK)
        rc = err_set(e, -EINVAL, "%s: a row of %zu bytes is too long", t->name, w->bytes);
    if (!rc && !(first = malloc(w->bytes)))
        rc = err_set(e, -ENOMEM, "no memory for a row");
    if (!rc)
        rows_fill(w, 0, first, 1, t->dims[1]);
    for (uint64_t row = 1; !rc && row < t->dims[1]; row++) {
        rows_fill(w, row, room, 1, t->dims[1]);
        rc = out_write(o, room, w->bytes, e);
    }
    rc = rc ? rc : out_write(o, first, w->bytes, e);
    free(first);
    free(w);
    return rc;
}

static int write_identity(struct out *o, const struct tensor *t, uint8_t *room, struct err *e)
{
    uint16_t one = f32_to_f16(1);
    int rc = 0;

    for (uint64_t row = 0; !rc && row < t->dims[1]; row++) {
        memset(room, 0, t->dims[0] * 2);
        memcpy(room + 2 * row, &one, 2);
        rc = out_write(o, room, t->dims[0] * 2, e);
    }
    return rc;
}

static int write_tensor(struct out *o, const struct tensor *t, const struct synth_routing *r,
                        uint64_t seed, uint8_t *room, struct err *e)
{
    static const uint8_t zeros[ALIGNMENT];
    int rc;

    seed = t->seed ? t->seed : seed;
    rc = t->making == RANDOM      ? write_random(o, t, r, seed, room, e)
         : t->making == ROUTER    ? write_router(o, t, r, seed, room, e)
         : t->making == SUCCESSOR ? write_successor(o, t, r, seed, room, e)
         : t->making == IDENTITY  ? write_identity(o, t, room, e)
                                  : write_vector(o, t, r, room, e);

    return rc ? rc : out_write(o, zeros, round_up(t->bytes, ALIGNMENT) - t->bytes, e);
}

static int write_all(struct out *o, const struct front *f, const struct layout *l,
                     const struct synth_routing *r, uint64_t seed, struct err *e)
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
        rc = write_tensor(o, &l->t[i], r, seed * 0x9E3779B97F4A7C15ull + i, room, e);
    if (!rc && fsync(o->fd))
        rc = err_set(e, -errno, "%s: cannot write to the disk: %s", o->path, strerror(errno));
    if (!rc)
        posix_fadvise(o->fd, 0, 0, POSIX_FADV_DONTNEED);
    free(room);
    return rc;
}

static int write_file(const char *path, const struct front *f, const struct layout *l,
                      const struct synth_routing *r, uint64_t seed, struct err *e)
{
    struct out o = {.fd = -1};
    char *part = NULL;
    struct stat st;
    int rc;

    if (!stat(path, &st) && !S_ISREG(st.st_mode)) /* the new name would replace a device, too */
        return err_set(e, -EINVAL, "%s: is there and no regular file; give another name", path);
    if (asprintf(&part, "%s.part", path) < 0)
        return err_set(e, -ENOMEM, "no memory for a file's name");
    o.path = part;
    o.fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (o.fd < 0) {
        rc = err_set(e, -errno, "%s: cannot create it: %s", part, strerror(errno));
        free(part);
        return rc;
    }
    rc = write_all(&o, f, l, r, seed, e);
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
    uint32_t block = type_info(s->trunk_type)->block_values;
    struct synth_routing r;
    struct layout l = {0};
    struct front f = {0};
    int rc = synth_routing(s->preset, s->embd, s->head_dim, ROPE_BASE, s->experts, s->used,
                           block < 32 ? 32 : block, &r, e);

    rc = rc ? rc : s->glm5next ? synth_glm_lay_out(&l, s, e) : s->qwen4exp ? synth_qwen4_lay_out(&l, s, &r, e) : lay_out(&l, s, &r, e);

    rc = rc ? rc : make_front(&f, &l, s, e);
    rc = rc ? rc : write_file(path, &f, &l, &r, s->seed, e);
    *bytes = f.n + l.next;
    free(f.b);
    free(l.t);
    return rc;
}
