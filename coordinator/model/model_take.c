/* What architecture readers are written with: keys with their ranges, tensors with their shapes.
 * Each refusal names file, place, what was found and what was wanted. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/model/model.h"
#include "kernels/type/type.h"

enum { KEY = 192, NAME = 128, WANTED = 400 };

/* --- keys --------------------------------------------------------------------------------------
 */

static const char *full_key(const struct model *m, const char *key, char out[KEY])
{
    snprintf(out, KEY, "%s.%s", m->arch->name, key);
    return out;
}

/* A number, or one value for each layer if they are all the same. 0, 1: absent, -EINVAL. */
static int integer_or_equal(const struct gguf *g, const char *key, uint64_t *out)
{
    struct gguf_array a;
    int rc = gguf_u64(g, key, out);

    if (rc != -EINVAL || gguf_array(g, key, &a) || a.n == 0)
        return rc;
    for (size_t i = 0; i < a.n; i++) {
        uint64_t v;

        if (gguf_array_u64(&a, i, &v) || (i && v != *out))
            return -EINVAL;
        *out = v;
    }
    return 0;
}

int model_key_u32(const struct model *m, const char *key, int optional, uint32_t min, uint32_t max,
                  uint32_t *out, struct err *e)
{
    char full[KEY], wanted[WANTED];
    uint64_t v;
    int rc = integer_or_equal(m->g, full_key(m, key, full), &v);

    if (rc == 1 && optional)
        return 0;
    if (rc == 0 && v >= min && v <= max) {
        *out = (uint32_t)v;
        return 0;
    }
    snprintf(wanted, sizeof wanted, "an integer from %u to %u%s", min, max,
             gguf_kind(m->g, full) == GGUF_ARRAY ? ", the same for all layers" : "");
    return gguf_why(m->g, full, wanted, e);
}

int model_key_f32(const struct model *m, const char *key, int optional, float *out, struct err *e)
{
    char full[KEY];
    float v;
    int rc = gguf_f32(m->g, full_key(m, key, full), &v);

    if (rc == 1 && optional)
        return 0;
    if (rc || !isfinite(v))
        return gguf_why(m->g, full, "a finite number", e);
    *out = v;
    return 0;
}

/* Which of an array's values, or -EINVAL: it has none for every layer. */
static int array_of(const struct model *m, const char *full, uint32_t il, struct gguf_array *a)
{
    return gguf_kind(m->g, full) == GGUF_ARRAY && !gguf_array(m->g, full, a) && il < a->n ? 0 : -EINVAL;
}

int model_key_u32_of(const struct model *m, const char *key, int optional, uint32_t il, uint32_t min,
                     uint32_t max, uint32_t *out, struct err *e)
{
    char full[KEY], wanted[WANTED];
    struct gguf_array a;
    uint64_t v = 0;
    int rc = gguf_u64(m->g, full_key(m, key, full), &v);

    if (rc == 1 && optional)
        return 0;
    if (rc == -EINVAL && !array_of(m, full, il, &a))
        rc = gguf_array_u64(&a, il, &v);
    if (rc == 0 && v >= min && v <= max) {
        *out = (uint32_t)v;
        return 0;
    }
    snprintf(wanted, sizeof wanted, "an integer from %u to %u, or one for each of %u layers", min, max,
             m->n_layers);
    return gguf_why(m->g, full, wanted, e);
}

int model_key_f32_of(const struct model *m, const char *key, int optional, uint32_t il, float *out,
                     struct err *e)
{
    char full[KEY];
    struct gguf_array a;
    float v = 0;
    int rc = gguf_f32(m->g, full_key(m, key, full), &v);

    if (rc == 1 && optional)
        return 0;
    if (rc == -EINVAL && !array_of(m, full, il, &a))
        rc = gguf_array_f32(&a, il, &v);
    if (rc || !isfinite(v))
        return gguf_why(m->g, full, "a finite number, or one for each layer", e);
    *out = v;
    return 0;
}

int model_key_bool_of(const struct model *m, const char *key, uint32_t il, int *out, struct err *e)
{
    char full[KEY];
    struct gguf_array a;
    int v = 0, rc = gguf_bool(m->g, full_key(m, key, full), &v);

    if (rc == 1)
        return 0;
    if (rc == -EINVAL && gguf_kind(m->g, full) == GGUF_ARRAY && !gguf_array(m->g, full, &a)) {
        if (il >= a.n) /* the trunk's layers alone */
            return 0;
        rc = gguf_array_bool(&a, il, &v);
    }
    if (rc)
        return gguf_why(m->g, full, "true or false for each layer", e);
    *out = v;
    return 0;
}

int model_key_bool(const struct model *m, const char *key, int optional, int *out, struct err *e)
{
    char full[KEY];
    int v, rc = gguf_bool(m->g, full_key(m, key, full), &v);

    if (rc == 1 && optional)
        return 0;
    if (rc)
        return gguf_why(m->g, full, "true or false", e);
    *out = v;
    return 0;
}

int model_key_u64s(const struct model *m, const char *key, uint32_t n, uint64_t max, uint64_t *out, struct err *e)
{
    char full[KEY], wanted[WANTED];
    struct gguf_array a;
    int rc = gguf_array(m->g, full_key(m, key, full), &a);

    if (!rc && a.n != n)
        rc = -EINVAL;
    for (uint32_t i = 0; !rc && i < n; i++)
        rc = gguf_array_u64(&a, i, &out[i]) || out[i] > max ? -EINVAL : 0;
    if (!rc)
        return 0;
    snprintf(wanted, sizeof wanted, "%u integers, each from 0 to %llu", n, (unsigned long long)max);
    return gguf_why(m->g, full, wanted, e);
}

int model_key_refuse(const struct model *m, const char *key, double harmless, struct err *e)
{
    char full[KEY], wanted[WANTED];
    float v;
    int rc = gguf_f32(m->g, full_key(m, key, full), &v);

    if (rc == 1 || (rc == 0 && (v == 0 || v == (float)harmless)))
        return 0;
    snprintf(wanted, sizeof wanted, "absent or %g: anything else is not supported for %s", harmless,
             m->arch->name);
    return gguf_why(m->g, full, wanted, e);
}

/* --- tensors -----------------------------------------------------------------------------------
 */

static const char *show_dims(const uint64_t d[4], char out[100])
{
    int n = 4, o;

    while (n > 1 && d[n - 1] == 1)
        n--;
    o = snprintf(out, 100, "{%llu", (unsigned long long)d[0]);
    for (int i = 1; i < n; i++)
        o += snprintf(out + o, 100 - (size_t)o, ", %llu", (unsigned long long)d[i]);
    snprintf(out + o, 100 - (size_t)o, "}");
    return out;
}

static int refuse_type(const struct model *m, const struct gguf_tensor *t, struct err *e)
{
    char built[WANTED] = "";
    size_t n = 0;

    for (uint32_t id = 0; id < MODEL_TYPES; id++)
        if (type_info(id) && type_info(id)->built && n < sizeof built - 16)
            n += (size_t)sprintf(built + n, "%s%s", n ? ", " : "", type_info(id)->name);
    return err_set(e, -EINVAL, "%s: byte %u: tensor '%s': type %s is not supported yet (%s)",
                   gguf_shard_path(m->g, t->shard), t->info_at, t->name.s, type_info(t->type)->name,
                   built);
}

/* Finds the tensor and checks dims and type. *out NULL: absent, and optional. */
static int find(struct model *m, const char *name, int optional, const uint64_t dims[4],
                const struct gguf_tensor **out, struct err *e)
{
    const struct gguf_tensor *t = gguf_tensor(m->g, name);
    char found[100], wanted[100];

    *out = NULL;
    if (!t && optional)
        return 0;
    if (!t)
        return err_set(e, -EINVAL, "%s: tensor '%s' is missing (%s, architecture %s)", m->path,
                       name, show_dims(dims, wanted), m->arch->name);
    if (memcmp(t->dims, dims, sizeof t->dims))
        return err_set(e, -EINVAL, "%s: byte %u: tensor '%s': dimensions %s (%s)",
                       gguf_shard_path(m->g, t->shard), t->info_at, name, show_dims(t->dims, found),
                       show_dims(dims, wanted));
    if (!type_info(t->type)->built && !(m->flags & MODEL_ANY_TYPE))
        return refuse_type(m, t, e);
    *out = t;
    return 0;
}

static void claim(struct model *m, const struct gguf_tensor *t)
{
    m->claimed[t - gguf_tensor_at(m->g, 0)] = 1;
}

static int take_dims(struct model *m, const char *name, enum model_kind kind, int optional,
                     uint32_t n_dims, const uint64_t dims[4], uint32_t *out, struct err *e)
{
    const struct gguf_tensor *t;
    struct model_tensor *mt;

    *out = MODEL_NONE;
    if (find(m, name, optional, dims, &t, e))
        return -EINVAL;
    if (!t)
        return 0;
    claim(m, t);
    *out = m->n_tensors++; /* each name is asked for once, so there is room */
    mt = &m->tensor[*out];
    *mt = (struct model_tensor){.name = t->name.s,
                                .kind = kind,
                                .type = t->type,
                                .n_dims = n_dims,
                                .row_bytes = t->row_bytes,
                                .bytes = t->bytes,
                                .shard = t->shard,
                                .file_offset = t->file_offset};
    memcpy(mt->dims, t->dims, sizeof mt->dims);
    return 0;
}

static int take(struct model *m, const char *name, enum model_kind kind, int optional,
                uint32_t n_dims, uint64_t cols, uint64_t rows, uint32_t *out, struct err *e)
{
    return take_dims(m, name, kind, optional, n_dims, (const uint64_t[4]){cols, rows, 1, 1}, out, e);
}

/* A factor of rule 14: always F32. */
static int take_scale(struct model *m, const char *name, enum model_kind kind, uint64_t n,
                      uint32_t *out, struct err *e)
{
    if (take(m, name, kind, 1, 1, n, 1, out, e))
        return -EINVAL;
    if (*out != MODEL_NONE && m->tensor[*out].type != W_F32) {
        const struct gguf_tensor *t = gguf_tensor(m->g, name);

        return err_set(e, -EINVAL, "%s: byte %u: tensor '%s': type %s (F32)",
                       gguf_shard_path(m->g, t->shard), t->info_at, name, type_info(t->type)->name);
    }
    return 0;
}

int model_tensor(struct model *m, enum model_kind kind, int optional, uint64_t cols, uint64_t rows,
                 uint32_t *out, struct err *e, const char *fmt, ...)
{
    char name[NAME];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    return take(m, name, kind, optional, rows > 1 || kind == MODEL_EMBEDDING ? 2 : 1, cols, rows,
                out, e);
}

/* STEM.weight, or STEM where the file has only that; and what belongs to it. */
static int take_weight(struct model *m, const char *stem, enum model_kind kind, int optional,
                       const uint64_t dims[4], struct model_weight *out, struct err *e)
{
    char name[NAME + 8];

    *out = (struct model_weight){MODEL_NONE, MODEL_NONE, MODEL_NONE};
    snprintf(name, sizeof name, "%s.weight", stem);
    if (!gguf_tensor(m->g, name) && gguf_tensor(m->g, stem))
        snprintf(name, sizeof name, "%s", stem);
    if (take_dims(m, name, kind, optional, 2, dims, &out->w, e))
        return -EINVAL;
    if (out->w == MODEL_NONE)
        return 0;
    snprintf(name, sizeof name, "%s.scale", stem);
    if (take_scale(m, name, kind, 1, &out->scale, e))
        return -EINVAL;
    if (dims[2] > 1) /* no bias is defined for several matrices */
        return 0;
    snprintf(name, sizeof name, "%s.bias", stem);
    return take(m, name, kind, 1, 1, dims[1], 1, &out->bias, e);
}

int model_weight(struct model *m, enum model_kind kind, int optional, uint64_t cols, uint64_t rows,
                 struct model_weight *out, struct err *e, const char *fmt, ...)
{
    char stem[NAME];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(stem, sizeof stem, fmt, ap);
    va_end(ap);
    return take_weight(m, stem, kind, optional, (const uint64_t[4]){cols, rows, 1, 1}, out, e);
}

int model_weights(struct model *m, enum model_kind kind, uint64_t cols, uint64_t rows, uint64_t n,
                  struct model_weight *out, struct err *e, const char *fmt, ...)
{
    char stem[NAME];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(stem, sizeof stem, fmt, ap);
    va_end(ap);
    return take_weight(m, stem, kind, 0, (const uint64_t[4]){cols, rows, n, 1}, out, e);
}

int model_values(struct model *m, enum model_kind kind, const uint64_t dims[4], uint32_t *out, struct err *e,
                 const char *fmt, ...)
{
    char name[NAME], *end;
    struct model_tensor *t;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    end = strrchr(name, '.');
    if (!gguf_tensor(m->g, name) && end && !strcmp(end, ".weight")) {
        *end = 0;
        if (!gguf_tensor(m->g, name))
            *end = '.';
    }
    if (take_dims(m, name, kind, 0, 1, dims, out, e))
        return -EINVAL;
    t = &m->tensor[*out];
    t->row_bytes = t->bytes;
    t->dims[0] = dims[0] * dims[1] * dims[2];
    t->dims[1] = t->dims[2] = t->dims[3] = 1;
    return 0;
}

void model_ignore(struct model *m, const char *fmt, ...)
{
    const struct gguf_tensor *t;
    char name[NAME];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    t = gguf_tensor(m->g, name);
    if (!t)
        return;
    claim(m, t);
    m->unused_bytes += t->bytes;
}

int model_has(const struct model *m, const char *fmt, ...)
{
    char name[NAME];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    return gguf_tensor(m->g, name) != NULL;
}

/* --- experts -----------------------------------------------------------------------------------
 */

/* The rows from first_row on of every expert of t. */
static struct model_matrix matrix_of(const struct gguf_tensor *t, uint64_t first_row, uint64_t rows)
{
    return (struct model_matrix){.type = t->type,
                                 .rows = (uint32_t)rows,
                                 .cols = (uint32_t)t->dims[0],
                                 .row_bytes = t->row_bytes,
                                 .bytes = t->row_bytes * rows,
                                 .shard = t->shard,
                                 .file_offset = t->file_offset + first_row * t->row_bytes,
                                 .stride = t->row_bytes * t->dims[1],
                                 .scale = MODEL_NONE};
}

static int take_fused(struct model *m, uint32_t il, struct model_layer *l, int *found,
                      struct err *e)
{
    const uint64_t dims[4] = {m->n_embd, 2ull * m->n_ff, m->n_experts, 1};
    const struct gguf_tensor *t;
    char name[NAME];

    snprintf(name, sizeof name, "blk.%u.ffn_gate_up_exps.weight", il);
    if (find(m, name, 1, dims, &t, e))
        return -EINVAL;
    *found = t != NULL;
    if (!t)
        return 0;
    claim(m, t);
    l->expert[MODEL_GATE] = matrix_of(t, 0, m->n_ff);
    l->expert[MODEL_UP] = matrix_of(t, m->n_ff, m->n_ff);
    return 0;
}

static int take_matrix(struct model *m, uint32_t il, const char *which, uint64_t cols,
                       uint64_t rows, struct model_matrix *out, struct err *e)
{
    const uint64_t dims[4] = {cols, rows, m->n_experts, 1};
    const struct gguf_tensor *t;
    char name[NAME];

    snprintf(name, sizeof name, "blk.%u.ffn_%s_exps.weight", il, which);
    if (find(m, name, 0, dims, &t, e))
        return -EINVAL;
    claim(m, t);
    *out = matrix_of(t, 0, rows);
    snprintf(name, sizeof name, "blk.%u.ffn_%s_exps.scale", il, which);
    return take_scale(m, name, MODEL_OTHER, m->n_experts, &out->scale, e);
}

int model_experts(struct model *m, uint32_t il, struct model_layer *l, struct err *e)
{
    int fused;

    if (take_fused(m, il, l, &fused, e))
        return -EINVAL;
    if (!fused && (take_matrix(m, il, "gate", m->n_embd, m->n_ff, &l->expert[MODEL_GATE], e) ||
                   take_matrix(m, il, "up", m->n_embd, m->n_ff, &l->expert[MODEL_UP], e)))
        return -EINVAL;
    if (take_matrix(m, il, "down", m->n_ff, m->n_embd, &l->expert[MODEL_DOWN], e))
        return -EINVAL;
    l->n_experts = m->n_experts;
    l->expert_bytes = 0;
    for (int i = 0; i < EXPERT_MATRICES; i++)
        l->expert_bytes += l->expert[i].bytes;
    return 0;
}

/* --- NextN --------------------------------------------------------------------------------------
 */

int model_read_nextn(struct model *m, struct err *e)
{
    uint32_t il = m->n_layers - 1;
    struct model_nextn *n = &m->nextn;

    if (model_weight(m, MODEL_NEXTN, 0, 2ull * m->n_embd, m->n_embd, &n->eh, e, "blk.%u.nextn.eh_proj", il) ||
        model_tensor(m, MODEL_NEXTN, 0, m->n_embd, 1, &n->e_norm, e, "blk.%u.nextn.enorm.weight", il) ||
        model_tensor(m, MODEL_NEXTN, 0, m->n_embd, 1, &n->h_norm, e, "blk.%u.nextn.hnorm.weight", il) ||
        model_tensor(m, MODEL_NEXTN, 1, m->n_embd, 1, &n->head_norm, e, "blk.%u.nextn.shared_head_norm.weight", il) ||
        model_tensor(m, MODEL_EMBEDDING, 1, m->n_embd, m->n_vocab, &n->embed, e, "blk.%u.nextn.embed_tokens.weight",
                     il) ||
        model_weight(m, MODEL_HEAD, 1, m->n_embd, m->n_vocab, &n->head, e, "blk.%u.nextn.shared_head_head", il))
        return -EINVAL;
    if (n->head_norm == MODEL_NONE)
        n->head_norm = m->output_norm;
    if (n->embed == MODEL_NONE)
        n->embed = m->token_embd;
    if (n->head.w == MODEL_NONE)
        n->head = m->output;
    return 0;
}
