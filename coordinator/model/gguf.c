/* One logical model file out of the fronts of its shards: looks up keys and tensors. All checks of
 * what is inside one file are gguf_front.c's, those of how files belong together gguf_split.c's;
 * here only names of tensors are compared over all shards. */
#define _GNU_SOURCE /* qsort_r, asprintf */
#include "coordinator/model/gguf.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/model/gguf_front.h"
#include "coordinator/model/gguf_split.h"

struct gguf {
    struct front *shard; /* [0] has the metadata */
    size_t n_shards;
    struct gguf_tensor *tensor; /* all shards' */
    size_t n_tensors;
    uint32_t *order; /* of tensor, by length and bytes of the name */
    char **warning;  /* ends with NULL */
};

/* --- opening -----------------------------------------------------------------------------------
 */

static int cmp_tensor(const void *a, const void *b, void *ctx)
{
    const struct gguf *g = ctx;
    const struct gguf_tensor *x = &g->tensor[*(const uint32_t *)a],
                             *y = &g->tensor[*(const uint32_t *)b];

    return front_name_cmp(x->name.s, x->name.n, y->name.s, y->name.n);
}

static int check_names(const struct gguf *g, struct err *e)
{
    char path[FRONT_SHOWN * 3], name[FRONT_SHOWN];
    uint32_t twice = UINT32_MAX, first = 0;
    const struct gguf_tensor *t, *o;
    size_t before = 0;

    for (size_t i = 1; i < g->n_tensors; i++) {
        uint32_t a = g->order[i - 1], b = g->order[i], later = a > b ? a : b;

        if (cmp_tensor(&a, &b, (void *)g) || later >= twice)
            continue;
        twice = later;
        first = a < b ? a : b;
    }
    if (twice == UINT32_MAX)
        return 0;
    t = &g->tensor[twice];
    o = &g->tensor[first];
    for (size_t i = 0; i < t->shard; i++)
        before += g->shard[i].n_tensors;
    front_show_path(path, g->shard[t->shard].path);
    front_show(name, t->name.s, t->name.n);
    if (t->shard == o->shard)
        return err_set(e, -EINVAL,
                       "%s: byte %u: tensor %zu '%s': name is there twice (also at byte %u)", path,
                       t->info_at, twice - before, name, o->info_at);
    return err_set(
        e, -EINVAL,
        "%s: byte %u: tensor %zu '%s': name is there twice (also in part %u of the model)", path,
        t->info_at, twice - before, name, o->shard + 1);
}

static int collect_tensors(struct gguf *g, struct err *e)
{
    size_t n = 0;

    for (size_t s = 0; s < g->n_shards; s++)
        n += g->shard[s].n_tensors;
    g->tensor = malloc((n + 1) * sizeof *g->tensor);
    g->order = malloc((n + 1) * sizeof *g->order);
    if (!g->tensor || !g->order || n >= UINT32_MAX)
        return err_set(e, -ENOMEM, "no memory for %zu tensors", n);
    for (size_t s = 0; s < g->n_shards; s++)
        for (size_t i = 0; i < g->shard[s].n_tensors; i++) {
            g->order[g->n_tensors] = (uint32_t)g->n_tensors;
            g->tensor[g->n_tensors] = g->shard[s].tensor[i];
            g->tensor[g->n_tensors++].shard = (uint32_t)s;
        }
    qsort_r(g->order, n, sizeof *g->order, cmp_tensor, g);
    return check_names(g, e);
}

static int collect_warnings(struct gguf *g, struct err *e)
{
    char path[FRONT_SHOWN * 3];
    size_t n = 0;

    g->warning = calloc(g->n_shards + 1, sizeof *g->warning);
    if (!g->warning)
        return err_set(e, -ENOMEM, "no memory for %zu shards", g->n_shards);
    for (size_t s = 0; s < g->n_shards; s++) {
        const struct front *f = &g->shard[s];
        uint64_t more = f->file_bytes - f->data_end;

        if (!f->n_tensors || more < f->alignment)
            continue;
        if (asprintf(&g->warning[n++],
                     "%s: byte %llu: %llu bytes after the last tensor's data are not used",
                     front_show_path(path, f->path), (unsigned long long)f->data_end,
                     (unsigned long long)more) < 0) {
            g->warning[n - 1] = NULL;
            return err_set(e, -ENOMEM, "no memory for a warning");
        }
    }
    return 0;
}

/* Owns s and what it holds, also on failure. */
static int from_shards(struct front *s, size_t n, struct gguf **out, struct err *e)
{
    struct gguf *g = calloc(1, sizeof *g);
    int rc;

    if (!g) {
        for (size_t i = 0; i < n; i++)
            front_close(&s[i]);
        free(s);
        return err_set(e, -ENOMEM, "no memory for a model file");
    }
    g->shard = s;
    g->n_shards = n;
    rc = collect_tensors(g, e);
    if (!rc)
        rc = collect_warnings(g, e);
    if (rc) {
        gguf_close(g);
        return rc;
    }
    *out = g;
    return 0;
}

int gguf_open(const char *path, struct gguf **out, struct err *e)
{
    struct front one, *shards = NULL;
    size_t n = 0;
    int rc = front_open(&one, path, e);

    if (!rc)
        rc = split_open(&one, &shards, &n, e);
    return rc ? rc : from_shards(shards, n, out, e);
}

int gguf_parse(const char *name, const void *data, size_t n, uint64_t file_bytes, struct gguf **out,
               struct err *e)
{
    struct front *one = malloc(sizeof *one);
    int rc;

    if (!one)
        return err_set(e, -ENOMEM, "no memory for a model file");
    rc = front_parse(one, name, data, n, file_bytes, e);
    if (rc) {
        free(one);
        return rc;
    }
    return from_shards(one, 1, out, e);
}

void gguf_close(struct gguf *g)
{
    if (!g)
        return;
    for (size_t i = 0; i < g->n_shards; i++)
        front_close(&g->shard[i]);
    for (size_t i = 0; g->warning && g->warning[i]; i++)
        free(g->warning[i]);
    free(g->warning);
    free(g->shard);
    free(g->tensor);
    free(g->order);
    free(g);
}

/* --- shards ------------------------------------------------------------------------------------
 */

size_t gguf_n_shards(const struct gguf *g)
{
    return g->n_shards;
}
const char *gguf_shard_path(const struct gguf *g, size_t i)
{
    assert(i < g->n_shards);
    return g->shard[i].path;
}
int gguf_shard_fd(const struct gguf *g, size_t i)
{
    assert(i < g->n_shards);
    return g->shard[i].fd;
}
uint64_t gguf_shard_bytes(const struct gguf *g, size_t i)
{
    assert(i < g->n_shards);
    return g->shard[i].file_bytes;
}
uint32_t gguf_version(const struct gguf *g)
{
    return g->shard[0].version;
}
uint32_t gguf_alignment(const struct gguf *g, size_t i)
{
    assert(i < g->n_shards);
    return g->shard[i].alignment;
}

/* --- metadata ----------------------------------------------------------------------------------
 */

int gguf_u64(const struct gguf *g, const char *key, uint64_t *out)
{
    return front_u64(&g->shard[0], key, out);
}

int gguf_f32(const struct gguf *g, const char *key, float *out)
{
    const struct front_kv *kv = front_find(&g->shard[0], key);

    return kv ? front_number_f32(kv->kind, g->shard[0].buf + kv->value_at, out) : 1;
}

int gguf_bool(const struct gguf *g, const char *key, int *out)
{
    const struct front_kv *kv = front_find(&g->shard[0], key);

    if (!kv)
        return 1;
    if (kv->kind != GGUF_BOOL)
        return -EINVAL;
    *out = g->shard[0].buf[kv->value_at];
    return 0;
}

int gguf_string(const struct gguf *g, const char *key, struct gguf_str *out)
{
    const struct front_kv *kv = front_find(&g->shard[0], key);

    if (!kv)
        return 1;
    if (kv->kind != GGUF_STRING)
        return -EINVAL;
    *out = (struct gguf_str){(const char *)g->shard[0].buf + kv->value_at, kv->n};
    return 0;
}

int gguf_array(const struct gguf *g, const char *key, struct gguf_array *out)
{
    const struct front_kv *kv = front_find(&g->shard[0], key);

    if (!kv)
        return 1;
    if (kv->kind != GGUF_ARRAY)
        return -EINVAL;
    *out = (struct gguf_array){kv->elem, kv->n, g->shard[0].buf + kv->value_at, kv->index};
    return 0;
}

struct gguf_str gguf_array_str(const struct gguf_array *a, size_t i)
{
    assert(i < a->n);
    if (a->kind != GGUF_STRING)
        return (struct gguf_str){"", 0};
    return (struct gguf_str){(const char *)a->data + a->index[i],
                             a->index[i + 1] - 8 - a->index[i]};
}

static const unsigned char *element(const struct gguf_array *a, size_t i)
{
    assert(i < a->n);
    return a->data + i * front_kind_bytes(a->kind);
}

int gguf_array_u64(const struct gguf_array *a, size_t i, uint64_t *out)
{
    return front_number_u64(a->kind, element(a, i), out);
}
int gguf_array_i64(const struct gguf_array *a, size_t i, int64_t *out)
{
    return front_number_i64(a->kind, element(a, i), out);
}
int gguf_array_f32(const struct gguf_array *a, size_t i, float *out)
{
    return front_number_f32(a->kind, element(a, i), out);
}
int gguf_array_bool(const struct gguf_array *a, size_t i, int *out)
{
    if (a->kind != GGUF_BOOL)
        return -EINVAL;
    *out = *element(a, i);
    return 0;
}

int gguf_kind(const struct gguf *g, const char *key)
{
    const struct front_kv *kv = front_find(&g->shard[0], key);

    return kv ? (int)kv->kind : -1;
}
size_t gguf_n_keys(const struct gguf *g)
{
    return g->shard[0].n_kv;
}
struct gguf_str gguf_key_at(const struct gguf *g, size_t i)
{
    const struct front *f = &g->shard[0];

    assert(i < f->n_kv);
    return (struct gguf_str){(const char *)f->buf + f->kv[i].key_at, f->kv[i].key_n};
}

int gguf_why(const struct gguf *g, const char *key, const char *wanted, struct err *e)
{
    const struct front *f = &g->shard[0];
    const struct front_kv *kv = front_find(f, key);
    char path[FRONT_SHOWN * 3], shown[FRONT_SHOWN], found[FRONT_SHOWN + 32];
    int64_t i;
    uint64_t u;
    float x;

    front_show_path(path, f->path);
    if (!kv)
        return err_set(e, -EINVAL, "%s: key '%s' is missing (%s)", path, key, wanted);
    if (!front_number_u64(kv->kind, f->buf + kv->value_at, &u))
        snprintf(found, sizeof found, "%llu", (unsigned long long)u);
    else if (!front_number_i64(kv->kind, f->buf + kv->value_at, &i))
        snprintf(found, sizeof found, "%lld", (long long)i);
    else if (!front_number_f32(kv->kind, f->buf + kv->value_at, &x))
        snprintf(found, sizeof found, "%.9g", x);
    else if (kv->kind == GGUF_STRING)
        snprintf(found, sizeof found, "'%s'", front_show(shown, f->buf + kv->value_at, kv->n));
    else if (kv->kind == GGUF_ARRAY)
        snprintf(found, sizeof found, "an array of %zu %s", kv->n, front_kind_name(kv->elem));
    else
        snprintf(found, sizeof found, "%s", f->buf[kv->value_at] ? "true" : "false");
    return err_set(e, -EINVAL, "%s: byte %u: key '%s': %s (%s)", path, kv->value_at, key, found,
                   wanted);
}

/* --- tensors -----------------------------------------------------------------------------------
 */

const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name)
{
    size_t n = strlen(name), lo = 0, hi = g->n_tensors;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const struct gguf_tensor *t = &g->tensor[g->order[mid]];
        int c = front_name_cmp(name, n, t->name.s, t->name.n);

        if (c == 0)
            return t;
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

size_t gguf_n_tensors(const struct gguf *g)
{
    return g->n_tensors;
}
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i)
{
    assert(i < g->n_tensors);
    return &g->tensor[i];
}

const char *gguf_warning(const struct gguf *g, size_t i)
{
    for (size_t j = 0; j < i; j++) /* i beyond the end stays at the end */
        if (!g->warning[j])
            return NULL;
    return g->warning[i];
}
