/* One logical model file out of the fronts of its shards: looks up keys and tensors. All checks of
 * what is inside one file are gguf_front.c's, those of how files belong together gguf_split.c's;
 * here only names of tensors are compared over all shards. */
#define _GNU_SOURCE /* qsort_r, asprintf */
#include "coordinator/model/gguf.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "coordinator/model/gguf_front.h"
#include "coordinator/model/gguf_split.h"
#include "coordinator/pack/pack.h"

struct gguf {
    struct front *shard; /* [0] has the metadata */
    size_t n_shards;
    struct gguf_tensor *tensor; /* all shards' */
    size_t n_tensors;
    uint32_t *order; /* of tensor, by length and bytes of the name */
    char **warning;  /* ends with NULL */
    struct pack *pack; /* its experts file is the last shard; or NULL */
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

/* ---- packs ---- */

/* The dense file's key against what the experts file says. */
static int same_words(const struct front *f, const char *key, const uint64_t *want, size_t n)
{
    const struct front_kv *kv = front_find(f, key);

    return kv && kv->kind == GGUF_ARRAY && kv->elem == GGUF_U64 && kv->n == n &&
           !memcmp(f->buf + kv->value_at, want, n * sizeof *want);
}

/* Does the dense file hold what the index says it does? */
static int check_dense(const struct front *f, const struct pack *p, struct err *e)
{
    size_t n = 0;

    if (!same_words(f, PACK_KEY_ID, p->head.id, 2) || !same_words(f, PACK_KEY_MODEL, p->head.model, 3))
        return err_set(e, -EINVAL, "%s: belongs to another pack than %s beside it; pack the model again",
                       p->path, PACK_DENSE);
    if (f->file_bytes != p->head.dense_bytes || f->data_start != p->head.dense_front)
        return err_set(e, -EINVAL, "%s: %llu bytes, of which %llu before the tensors; %s says %llu and %llu",
                       f->path, (unsigned long long)f->file_bytes, (unsigned long long)f->data_start,
                       PACK_EXPERTS, (unsigned long long)p->head.dense_bytes,
                       (unsigned long long)p->head.dense_front);
    for (uint32_t i = 0; i < p->head.n_tensors; i++) {
        const struct pack_tensor *t = &p->tensor[i];
        const struct gguf_tensor *d = &f->tensor[n];

        if (!t->dense)
            continue;
        if (n == f->n_tensors || strcmp(t->name, d->name.s) || t->type != d->type ||
            memcmp(t->dims, d->dims, sizeof t->dims) || d->file_offset % PACK_PAGE)
            return err_set(e, -EINVAL, "%s: has no tensor '%s' as %s says", f->path, t->name, PACK_EXPERTS);
        n++;
    }
    return n == f->n_tensors ? 0
                             : err_set(e, -EINVAL, "%s: has more tensors than %s says", f->path,
                                       PACK_EXPERTS);
}

/* The experts file as one more shard: its tensors, without places. */
static int pack_shard(const struct pack *p, struct front *f, struct err *e)
{
    *f = (struct front){.fd = dup(p->fd),
                        .path = strdup(p->path),
                        .file_bytes = p->head.file_bytes,
                        .alignment = PACK_PAGE,
                        .data_start = pack_blocks_at(&p->head),
                        .data_end = p->head.file_bytes,
                        .tensor = calloc(p->head.n_tensors, sizeof *f->tensor)};
    if (f->fd < 0 || !f->path || !f->tensor)
        return err_set(e, -ENOMEM, "%s: no memory or no descriptor for it", p->path);
    for (uint32_t i = 0; i < p->head.n_tensors; i++) {
        const struct pack_tensor *t = &p->tensor[i];
        struct gguf_tensor *o = &f->tensor[f->n_tensors];

        if (t->dense)
            continue;
        *o = (struct gguf_tensor){.name = {t->name, strlen(t->name)},
                                  .type = t->type,
                                  .n_dims = t->n_dims,
                                  .info_at = PACK_PAGE + i * (uint32_t)sizeof *t,
                                  .file_offset = f->data_start,
                                  .bytes = pack_tensor_bytes(p, t),
                                  .row_bytes = p->row_bytes[i]};
        memcpy(o->dims, t->dims, sizeof o->dims);
        f->n_tensors++;
    }
    return 0;
}

/* `dense` is taken over, and closed on failure. */
static int open_pack(struct front *dense, struct gguf **out, struct err *e)
{
    struct front *s = calloc(2, sizeof *s);
    struct pack *p = NULL;
    char *path = strdup(dense->path), *slash = path ? strrchr(path, '/') : NULL, *experts = NULL;
    int rc;

    if (!path || !s || asprintf(&experts, "%.*s%s", slash ? (int)(slash - path) + 1 : 0, path,
                                PACK_EXPERTS) < 0) {
        experts = NULL;
        rc = err_set(e, -ENOMEM, "no memory for a pack");
    } else {
        rc = pack_open(experts, &p, e);
    }
    if (!rc)
        rc = check_dense(dense, p, e);
    if (!rc) {
        s[0] = *dense;
        rc = pack_shard(p, &s[1], e);
        *dense = (struct front){.fd = -1};
        if (rc) {
            front_close(&s[0]);
            front_close(&s[1]);
        } else {
            rc = from_shards(s, 2, out, e);
            s = NULL;
        }
    }
    if (!rc)
        (*out)->pack = p;
    else {
        pack_close(p);
        front_close(dense);
    }
    free(s);
    free(path);
    free(experts);
    return rc;
}

/* The dense file of a folder; NULL: no such thing, or no memory. */
static char *dense_in(const char *path)
{
    struct stat st;
    char *dense;

    if (stat(path, &st) || !S_ISDIR(st.st_mode) || asprintf(&dense, "%s/" PACK_DENSE, path) < 0)
        return NULL;
    if (!access(dense, F_OK))
        return dense;
    free(dense);
    return NULL;
}

/* Does the folder hold such a file? */
static int holds(const char *folder, const char *name)
{
    char *file;
    int is;

    if (asprintf(&file, "%s/%s", folder, name) < 0)
        return 0;
    is = !access(file, F_OK);
    free(file);
    return is;
}

static int is_experts_file(const char *path)
{
    const char *slash = strrchr(path, '/');

    return !strcmp(slash ? slash + 1 : path, PACK_EXPERTS) && !access(path, F_OK);
}

int gguf_open(const char *path, struct gguf **out, struct err *e)
{
    struct front one, *shards = NULL;
    char *dense = dense_in(path);
    size_t n = 0;
    int rc;

    if (!dense && holds(path, PACK_EXPERTS ".part"))
        return err_set(e, -EINVAL, "%s: an unfinished pack; the same conclave pack goes on with it", path);
    if (!dense && holds(path, PACK_EXPERTS))
        return err_set(e, -EINVAL, "%s: a pack without its %s; remove it and pack the model again", path, PACK_DENSE);
    if (is_experts_file(path))
        return err_set(e, -EINVAL, "%s: holds the experts of a pack; name the folder it lies in", path);
    rc = front_open(&one, dense ? dense : path, e);
    free(dense);
    if (!rc && front_find(&one, PACK_KEY_ID))
        return open_pack(&one, out, e);
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
    pack_close(g->pack);
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

const struct pack *gguf_pack(const struct gguf *g)
{
    return g->pack;
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

void gguf_key_bytes(const struct gguf *g, size_t i, uint64_t *at, uint64_t *n)
{
    const struct front *f = &g->shard[0];

    assert(i < f->n_kv);
    *at = f->kv[i].key_at - 8; /* its length */
    *n = (i + 1 < f->n_kv ? f->kv[i + 1].key_at - 8 : f->kv_end) - *at;
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
