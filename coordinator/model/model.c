/* From a checked container to a model: which architecture, is it one that this engine runs, and
 * what is left over when its reader has taken what it knows. Knows no tensor of any architecture
 * (arch_*.c do) and reads no weights. */
#define _GNU_SOURCE /* asprintf */
#include "coordinator/model/model.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/pack/pack.h"

static const char *const kind_names[MODEL_KINDS] = {
    [MODEL_EMBEDDING] = "embedding", [MODEL_ATTENTION] = "attention", [MODEL_ROUTER] = "router",
    [MODEL_NORM] = "norms",          [MODEL_DENSE] = "dense",         [MODEL_STREAMS] = "streams",
    [MODEL_TABLES] = "tables",       [MODEL_NEXTN] = "nextn",         [MODEL_EXPERTS] = "experts",
    [MODEL_HEAD] = "head",           [MODEL_OTHER] = "other",
};

static const struct model_arch *find_arch(const char *name)
{
    for (const struct model_arch *a = model_archs; a->name; a++)
        if (!strcmp(a->name, name))
            return a;
    return NULL;
}

static const char *known_archs(char *out, size_t cap)
{
    size_t n = 0;

    *out = 0;
    for (const struct model_arch *a = model_archs; a->name && n < cap; a++)
        n += (size_t)snprintf(out + n, cap - n, "%s%s", n ? ", " : "", a->name);
    return out;
}

/* --- files that are something else -------------------------------------------------------------
 */

static int check_general_type(const struct model *m, struct err *e)
{
    struct gguf_str s;
    int rc = gguf_string(m->g, "general.type", &s);

    if (rc < 0)
        return gguf_why(m->g, "general.type", "a string", e);
    if (rc == 1 || !strcmp(s.s, "model"))
        return 0;
    if (!strcmp(s.s, "adapter"))
        return gguf_why(m->g, "general.type",
                        "'model': an adapter has no model of its own; merge it into its base model",
                        e);
    if (!strcmp(s.s, "mmproj"))
        return gguf_why(
            m->g, "general.type",
            "'model': this is the image part that belongs to a model; name the model's file", e);
    if (!strcmp(s.s, "imatrix"))
        return gguf_why(m->g, "general.type",
                        "'model': this is statistics for a quantiser; name the model's file", e);
    return gguf_why(m->g, "general.type", "'model'", e);
}

/* blk.N.ffn_{gate,up,down}.E.weight: how files looked before experts were stacked. */
static int per_expert_name(const char *name)
{
    unsigned il, expert;
    char which[8];
    int end = 0;

    return sscanf(name, "blk.%u.ffn_%4[a-z].%u.weight%n", &il, which, &expert, &end) == 3 && end &&
           !name[end];
}

static int check_not_old(const struct model *m, struct err *e)
{
    for (size_t i = 0; i < gguf_n_tensors(m->g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(m->g, i);

        if (per_expert_name(t->name.s))
            return err_set(
                e, -EINVAL,
                "%s: byte %u: tensor '%s': an old file with one tensor for each expert; convert "
                "the original model again with llama.cpp's converter of 2024 or later",
                gguf_shard_path(m->g, t->shard), t->info_at, t->name.s);
    }
    return 0;
}

static int has_experts(const struct model *m, const char *arch)
{
    char key[160];
    uint64_t n;

    snprintf(key, sizeof key, "%s.expert_count", arch);
    if (!gguf_u64(m->g, key, &n) && n > 0)
        return 1;
    for (size_t i = 0; i < gguf_n_tensors(m->g); i++)
        if (strstr(gguf_tensor_at(m->g, i)->name.s, "_exps."))
            return 1;
    return 0;
}

static int find_architecture(struct model *m, struct err *e)
{
    char known[512], want[640];
    struct gguf_str s;

    if (gguf_string(m->g, "general.architecture", &s) || s.n == 0 || s.n > 64 || strlen(s.s) != s.n)
        return gguf_why(m->g, "general.architecture", "the name of an architecture", e);
    if (!gguf_n_tensors(m->g))
        return err_set(e, -EINVAL,
                       "%s: holds no tensors, a vocabulary only (a model file is needed)", m->path);
    m->arch = find_arch(s.s);
    if (!m->arch && !has_experts(m, s.s)) {
        snprintf(want, sizeof want,
                 "a Mixture-of-Experts model: this is a dense one, which has no experts to spread; "
                 "run it with llama.cpp, or take a MoE model: %s",
                 known_archs(known, sizeof known));
        return gguf_why(m->g, "general.architecture", want, e);
    }
    if (!m->arch) {
        snprintf(want, sizeof want, "an architecture that is known here: %s",
                 known_archs(known, sizeof known));
        return gguf_why(m->g, "general.architecture", want, e);
    }
    return 0;
}

/* Scaled rotations have no definition here yet, and without one the output would be quietly wrong.
 */
static int check_no_rope_scaling(const struct model *m, struct err *e)
{
    const char *arch = m->arch->name;
    size_t n = strlen(arch);

    for (size_t i = 0; i < gguf_n_keys(m->g); i++) {
        const char *key = gguf_key_at(m->g, i).s;

        if (strncmp(key, arch, n) || strncmp(key + n, ".rope.scal", 10))
            continue;
        if (!strcmp(key + n, ".rope.scale_linear") &&
            !model_key_refuse(m, "rope.scale_linear", 1, NULL))
            continue;
        return gguf_why(m->g, key, "no rope scaling: it is not supported yet", e);
    }
    for (size_t i = 0; i < gguf_n_tensors(m->g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(m->g, i);

        if (!strncmp(t->name.s, "rope_", 5))
            return err_set(e, -EINVAL,
                           "%s: byte %u: tensor '%s': rope factors are not supported yet",
                           gguf_shard_path(m->g, t->shard), t->info_at, t->name.s);
    }
    return 0;
}

/* --- what is left over -------------------------------------------------------------------------
 */

static int ends_with(const struct gguf_str *s, const char *end)
{
    size_t n = strlen(end);

    return s->n >= n && !memcmp(s->s + s->n - n, end, n);
}

static int warn(struct model *m, const char *line, struct err *e)
{
    char **p = realloc(m->warning, (m->n_warnings + 1) * sizeof *p);

    if (!p)
        return err_set(e, -ENOMEM, "no memory for a warning");
    m->warning = p;
    p[m->n_warnings] = strdup(line);
    if (!p[m->n_warnings])
        return err_set(e, -ENOMEM, "no memory for a warning");
    m->n_warnings++;
    return 0;
}

int model_warn(struct model *m, struct err *e, const char *fmt, ...)
{
    char line[700];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    return warn(m, line, e);
}

/* Counts by type and finds what no reader took. A factor that would be left out is no warning. */
static int count_tensors(struct model *m, struct err *e)
{
    enum { NAMED = 4 };
    char names[NAMED * 70] = "", line[NAMED * 70 + 400];
    size_t n = 0;

    for (size_t i = 0; i < gguf_n_tensors(m->g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(m->g, i);

        assert(t->type < MODEL_TYPES); /* type_info knows it */
        m->type_bytes[t->type] += t->bytes;
        m->type_tensors[t->type]++;
        if (m->claimed[i])
            continue;
        if (ends_with(&t->name, ".scale"))
            return err_set(
                e, -EINVAL,
                "%s: byte %u: tensor '%s': a scale that %s does not use here; without it the "
                "output would be wrong",
                gguf_shard_path(m->g, t->shard), t->info_at, t->name.s, m->arch->name);
        m->unused_bytes += t->bytes;
        if (ends_with(&t->name, ".input_scale")) /* nobody uses it: llama.cpp's graphs neither */
            continue;
        if (m->n_unused++ < NAMED)
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", t->name.s);
    }
    if (m->n_unused) {
        snprintf(line, sizeof line, "%s: %u tensors are not used by %s: %s%s", m->path, m->n_unused,
                 m->arch->name, names, m->n_unused > NAMED ? ", ..." : "");
        return warn(m, line, e);
    }
    return 0;
}

static void count_kinds(struct model *m)
{
    for (uint32_t i = 0; i < m->n_tensors; i++) {
        m->kind_bytes[m->tensor[i].kind] += m->tensor[i].bytes;
        m->trunk_bytes += m->tensor[i].bytes;
    }
    m->kind_bytes[MODEL_EXPERTS] = model_experts_bytes(m);
}

/* Rows of the embedding against the vocabulary: a token id must be a row. */
static int check_vocab(const struct model *m, struct err *e)
{
    const struct gguf_tensor *t = gguf_tensor(m->g, "token_embd.weight");
    struct gguf_array a;
    int rc = gguf_array(m->g, "tokenizer.ggml.tokens", &a);

    if (rc < 0 || (rc == 0 && a.kind != GGUF_STRING))
        return gguf_why(m->g, "tokenizer.ggml.tokens", "an array of strings", e);
    if (rc == 0 && a.n != m->n_vocab)
        return err_set(e, -EINVAL,
                       "%s: byte %u: tensor 'token_embd.weight': %u rows (%zu, one for each token)",
                       gguf_shard_path(m->g, t->shard), t->info_at, m->n_vocab, a.n);
    return 0;
}

/* --- packs ---- */

/* The blocks of a pack are cut for the experts that its index describes: are these the model's? */
static int check_pack(const struct model *m, struct err *e)
{
    const struct pack *p = gguf_pack(m->g);
    uint32_t shard = (uint32_t)gguf_n_shards(m->g) - 1;

    if (!p)
        return 0;
    if (p->head.n_layers != m->n_layers || p->head.n_experts != m->n_experts)
        return err_set(e, -EINVAL, "%s: has blocks for %u layers of %u experts, the model has %u of %u",
                       p->path, p->head.n_layers, p->head.n_experts, m->n_layers, m->n_experts);
    for (uint32_t il = 0; il < m->n_layers; il++)
        for (int k = 0; k < EXPERT_MATRICES; k++) {
            const struct model_matrix *x = &m->layer[il].expert[k];
            const struct expert_matrix *b = &p->shape[il].m[k];
            uint64_t first = (uint64_t)p->layer[il].m[k].first_row * b->row_bytes;

            if (p->layer[il].n_experts != m->layer[il].n_experts)
                return err_set(e, -EINVAL, "%s: layer %u: blocks for %u experts, the model has %u", p->path, il,
                               p->layer[il].n_experts, m->layer[il].n_experts);
            if (!m->layer[il].n_experts)
                continue;
            if (x->shard != shard || x->type != b->type ||
                x->rows != b->rows || x->cols != b->cols || x->row_bytes != b->row_bytes ||
                x->file_offset != pack_blocks_at(&p->head) + first)
                return err_set(e, -EINVAL, "%s: layer %u: its blocks are for other experts than the model's",
                               p->path, il);
        }
    return 0;
}

/* --- opening -----------------------------------------------------------------------------------
 */

static int read_model(struct model *m, struct err *e)
{
    size_t n = gguf_n_tensors(m->g);
    struct gguf_str s;

    m->path = gguf_shard_path(m->g, 0);
    m->name = gguf_string(m->g, "general.name", &s) ? "" : s.s;
    if (check_general_type(m, e) || check_not_old(m, e) || find_architecture(m, e) ||
        check_no_rope_scaling(m, e))
        return -EINVAL;
    m->claimed = calloc(n, 1);
    m->tensor = calloc(n, sizeof *m->tensor);
    if (!m->claimed || !m->tensor)
        return err_set(e, -ENOMEM, "%s: no memory for %zu tensors", m->path, n);
    if (m->arch->read(m, e) || check_vocab(m, e) || count_tensors(m, e) || check_pack(m, e))
        return e && e->code ? e->code : -EINVAL;
    count_kinds(m);
    for (size_t i = 0; gguf_warning(m->g, i); i++)
        if (warn(m, gguf_warning(m->g, i), e))
            return -ENOMEM;
    return 0;
}

int model_from_gguf(struct gguf *g, unsigned flags, struct model **out, struct err *e)
{
    struct model *m = calloc(1, sizeof *m);
    int rc;

    if (!m) {
        gguf_close(g);
        return err_set(e, -ENOMEM, "no memory for a model");
    }
    m->g = g;
    m->flags = flags;
    rc = read_model(m, e);
    if (rc) {
        model_close(m);
        return rc;
    }
    *out = m;
    return 0;
}

int model_open(const char *path, unsigned flags, struct model **out, struct err *e)
{
    struct gguf *g;
    int rc = gguf_open(path, &g, e);

    return rc ? rc : model_from_gguf(g, flags, out, e);
}

void model_close(struct model *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->n_warnings; i++)
        free(m->warning[i]);
    free(m->warning);
    free(m->claimed);
    free(m->tensor);
    free(m->layer);
    gguf_close(m->g);
    free(m);
}

/* --- sizes -------------------------------------------------------------------------------------
 */

const char *model_arch_name(const struct model *m)
{
    return m->arch->name;
}

const char *model_kind_name(enum model_kind k)
{
    return k < MODEL_KINDS ? kind_names[k] : "?";
}

uint64_t model_n_experts(const struct model *m)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < m->n_layers; i++)
        n += m->layer[i].n_experts;
    return n;
}

void model_expert_range(const struct model *m, uint64_t *smallest, uint64_t *largest)
{
    *smallest = UINT64_MAX;
    *largest = 0;
    for (uint32_t i = 0; i < m->n_layers; i++) {
        if (!m->layer[i].n_experts)
            continue;
        if (m->layer[i].expert_bytes < *smallest)
            *smallest = m->layer[i].expert_bytes;
        if (m->layer[i].expert_bytes > *largest)
            *largest = m->layer[i].expert_bytes;
    }
}

uint64_t model_experts_bytes(const struct model *m)
{
    uint64_t sum = 0; /* no overflow: all of it lies in files whose sizes are below 2^63 */

    for (uint32_t i = 0; i < m->n_layers; i++)
        sum += m->layer[i].expert_bytes * m->layer[i].n_experts;
    return sum;
}
