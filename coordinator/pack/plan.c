#define _GNU_SOURCE
#include "coordinator/pack/plan.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "coordinator/residency/heat_file.h"
#include "shm/size.h"

/* ---- the fronts of the originals ---- */

uint64_t pack_front_bytes(const struct gguf *g, uint32_t shard)
{
    uint64_t front = gguf_shard_bytes(g, shard);

    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (t->shard == shard && t->file_offset < front)
            front = t->file_offset;
    }
    return front < GGUF_FRONT_MAX ? front : GGUF_FRONT_MAX;
}

static int read_front(int fd, const char *path, void *to, size_t n, uint64_t off, struct err *e)
{
    char *out = to;

    while (n) {
        ssize_t k = pread(fd, out, n, (off_t)off);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return err_set(e, k ? -errno : -EIO, "%s: byte %llu: cannot read: %s", path,
                           (unsigned long long)off, k ? strerror(errno) : "the file ends here");
        out += k;
        off += (uint64_t)k;
        n -= (size_t)k;
    }
    return 0;
}

int pack_front_hash(int fd, const char *path, uint64_t n, uint64_t *xxh, struct err *e)
{
    enum { CHUNK = 1 << 20 };
    XXH3_state_t *x = XXH3_createState();
    char *buf = malloc(CHUNK);
    int rc = x && buf ? 0 : err_set(e, -ENOMEM, "%s: no memory", path);

    if (!rc)
        XXH3_64bits_reset(x);
    for (uint64_t at = 0; !rc && at < n; at += CHUNK) {
        size_t k = n - at < CHUNK ? (size_t)(n - at) : CHUNK;
        rc = read_front(fd, path, buf, k, at, e);
        if (!rc)
            XXH3_64bits_update(x, buf, k);
    }
    if (!rc)
        *xxh = XXH3_64bits_digest(x);
    XXH3_freeState(x);
    free(buf);
    return rc;
}

/* ---- counting ---- */

/* The tensor that a layer's matrix lies in. */
static uint32_t tensor_of(const struct gguf *g, const struct model_matrix *x)
{
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (t->shard == x->shard && x->file_offset >= t->file_offset &&
            x->file_offset < t->file_offset + t->bytes)
            return (uint32_t)i;
    }
    return MODEL_NONE; /* not possible: model_experts took it from one */
}

/* by[i]: tensor i of the gguf holds routed experts */
static void mark_experts(const struct model *m, uint8_t *by)
{
    for (uint32_t il = 0; il < m->n_layers; il++)
        for (int k = 0; m->layer[il].n_experts && k < N_MATS; k++)
            by[tensor_of(m->g, &m->layer[il].expert[k])] = 1;
}

static int count(struct pack_plan *p, uint32_t n_nodes, char **path, struct err *e)
{
    const struct gguf *g = p->m->g;
    struct pack_head *h = &p->head;

    if (gguf_n_tensors(g) > PACK_TENSORS_MAX || p->m->n_layers > PACK_LAYERS_MAX ||
        p->m->n_experts > PACK_EXPERTS_MAX)
        return err_set(e, -EFBIG, "%s: %zu tensors, %u layers of %u experts: too many for a pack",
                       p->m->path, gguf_n_tensors(g), p->m->n_layers, p->m->n_experts);
    h->version = PACK_VERSION;
    h->n_nodes = n_nodes;
    h->n_layers = p->m->n_layers;
    h->n_experts = p->m->n_experts;
    h->n_tensors = (uint32_t)gguf_n_tensors(g);
    h->n_originals = (uint32_t)gguf_n_shards(g);
    for (uint32_t i = 0; i < h->n_originals; i++) {
        path[i] = realpath(gguf_shard_path(g, i), NULL);
        if (!path[i] || strlen(path[i]) >= 4096)
            return err_set(e, path[i] ? -ENAMETOOLONG : -errno, "%s: its full path: %s",
                           gguf_shard_path(g, i), strerror(path[i] ? ENAMETOOLONG : errno));
        h->text_bytes += strlen(path[i]) + 1;
    }
    return 0;
}

static int make_room(struct pack_plan *p, struct err *e)
{
    const struct pack_head *h = &p->head;
    uint64_t blocks = (uint64_t)h->n_layers * h->n_experts * h->n_nodes;

    if (h->text_bytes > PACK_TEXT_MAX || pack_index_bytes(h) > PACK_INDEX_MAX)
        return err_set(e, -EFBIG, "%s: an index of %llu bytes is too large", p->m->path,
                       (unsigned long long)pack_index_bytes(h));
    p->index = calloc(1, pack_index_bytes(h));
    p->dense_off = calloc(h->n_tensors, sizeof *p->dense_off);
    p->shape = calloc(h->n_layers, sizeof *p->shape);
    if (!p->index || !p->dense_off || !p->shape)
        return err_set(e, -ENOMEM, "%s: no memory for the index of a pack", p->m->path);
    p->tensor = p->index;
    p->layer = (void *)(p->tensor + h->n_tensors);
    p->block = (void *)(p->layer + h->n_layers);
    p->original = (void *)(p->block + blocks);
    p->text = (void *)(p->original + h->n_originals);
    return 0;
}

/* ---- the index ---- */

static int fill_originals(struct pack_plan *p, char **path, struct err *e)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < p->head.n_originals; i++) {
        struct pack_original *o = &p->original[i];
        int rc, fd = gguf_shard_fd(p->m->g, i);
        struct stat st;

        if (fstat(fd, &st))
            return err_set(e, -errno, "%s: cannot look at it: %s", path[i], strerror(errno));
        *o = (struct pack_original){.bytes = (uint64_t)st.st_size,
                                    .mtime_ns = st.st_mtim.tv_sec * 1000000000ll + st.st_mtim.tv_nsec,
                                    .front = pack_front_bytes(p->m->g, i),
                                    .path_at = at,
                                    .path_n = (uint32_t)strlen(path[i])};
        if (o->bytes != gguf_shard_bytes(p->m->g, i))
            return err_set(e, -EBUSY, "%s: is being written", path[i]);
        rc = pack_front_hash(fd, path[i], o->front, &o->front_xxh, e);
        if (rc)
            return rc;
        memcpy(p->text + at, path[i], o->path_n + 1);
        at += o->path_n + 1;
    }
    return 0;
}

/* Dense tensors first; at[i]: the record of the gguf's tensor i. */
static void fill_tensors(struct pack_plan *p, const uint8_t *is_expert, uint32_t *at)
{
    uint32_t n = 0;

    for (uint8_t experts = 0; experts < 2; experts++) {
        for (uint32_t i = 0; i < p->head.n_tensors; i++) {
            const struct gguf_tensor *t = gguf_tensor_at(p->m->g, i);
            struct pack_tensor *o = &p->tensor[n];

            if (is_expert[i] != experts)
                continue;
            at[i] = n++;
            memcpy(o->name, t->name.s, t->name.n);
            o->type = t->type;
            o->n_dims = t->n_dims;
            memcpy(o->dims, t->dims, sizeof o->dims);
            o->dense = !experts;
            o->original = t->shard;
            o->original_off = t->file_offset;
        }
        if (!experts)
            p->n_dense = n;
    }
}

static void fill_layers(struct pack_plan *p, const uint32_t *at)
{
    for (uint32_t il = 0; il < p->head.n_layers; il++) {
        struct pack_layer *l = &p->layer[il];
        struct expert_layer *s = &p->shape[il];

        l->n_experts = s->n_experts = p->m->layer[il].n_experts;
        s->packed = 1;
        for (int k = 0; l->n_experts && k < N_MATS; k++) {
            const struct model_matrix *x = &p->m->layer[il].expert[k];
            uint32_t t = tensor_of(p->m->g, x);
            uint64_t skip = x->file_offset - gguf_tensor_at(p->m->g, t)->file_offset;

            l->m[k] = (struct pack_matrix){
                .tensor = at[t], .first_row = (uint32_t)(skip / x->row_bytes), .rows = x->rows};
            s->m[k] = (struct expert_matrix){
                .type = x->type, .rows = x->rows, .cols = x->cols, .row_bytes = x->row_bytes};
        }
    }
}

static void fill_blocks(struct pack_plan *p)
{
    struct pack_head *h = &p->head;
    uint64_t off = pack_blocks_at(h);
    struct pack_block *b = p->block;

    for (uint32_t il = 0; il < h->n_layers; il++)
        for (uint32_t x = 0; x < h->n_experts; x++)
            for (uint32_t k = 0; k < h->n_nodes; k++, b++) {
                if (x >= p->layer[il].n_experts)
                    continue;
                b->off = off;
                b->bytes = packed_bytes(&p->shape[il], k, h->n_nodes);
                off += pack_pages(b->bytes);
            }
    h->file_bytes = off;
}

/* ---- the dense file's front ---- */

static void put(FILE *f, const void *p, size_t n)
{
    fwrite(p, 1, n, f);
}
static void put_u32(FILE *f, uint32_t v)
{
    put(f, &v, 4);
}
static void put_u64(FILE *f, uint64_t v)
{
    put(f, &v, 8);
}
static void put_text(FILE *f, const char *s)
{
    put_u64(f, strlen(s));
    put(f, s, strlen(s));
}
static void put_words(FILE *f, const char *key, const uint64_t *w, size_t n)
{
    put_text(f, key);
    put_u32(f, GGUF_ARRAY);
    put_u32(f, GGUF_U64);
    put_u64(f, n);
    put(f, w, n * sizeof *w);
}

/* Says how the file is laid out or cut, not what the model is: not copied. */
static int is_layout(const char *key)
{
    return !strncmp(key, "split.", 6) || !strcmp(key, "general.alignment") ||
           !strncmp(key, "conclave.pack.", 14);
}

static int put_keys(FILE *f, struct pack_plan *p, uint64_t *n_keys, struct err *e)
{
    const struct gguf *g = p->m->g;
    int rc = 0;

    for (size_t i = 0; i < gguf_n_keys(g) && !rc; i++) {
        uint64_t at, n;
        char *raw;

        if (is_layout(gguf_key_at(g, i).s))
            continue;
        gguf_key_bytes(g, i, &at, &n);
        raw = malloc(n);
        rc = raw ? read_front(gguf_shard_fd(g, 0), gguf_shard_path(g, 0), raw, n, at, e)
                 : err_set(e, -ENOMEM, "no memory for a key of %llu bytes", (unsigned long long)n);
        if (!rc)
            put(f, raw, n);
        free(raw);
        ++*n_keys;
    }
    put_text(f, "general.alignment");
    put_u32(f, GGUF_U32);
    put_u32(f, PACK_PAGE);
    put_words(f, PACK_KEY_ID, p->head.id, 2);
    put_words(f, PACK_KEY_MODEL, p->head.model, 3);
    *n_keys += 3;
    return rc;
}

/* Infos, and where the tensors will lie behind the front: whole pages each. */
static uint64_t put_infos(FILE *f, struct pack_plan *p)
{
    uint64_t next = 0;

    for (uint32_t i = 0, n = 0; i < p->head.n_tensors; i++) {
        const struct pack_tensor *t = &p->tensor[i];
        const struct gguf_tensor *g;

        if (!t->dense)
            continue;
        g = gguf_tensor(p->m->g, t->name);
        put_text(f, t->name);
        put_u32(f, t->n_dims);
        put(f, t->dims, t->n_dims * sizeof *t->dims);
        put_u32(f, t->type);
        put_u64(f, next);
        p->dense_off[n++] = next;
        next += pack_pages(g->bytes);
    }
    return next;
}

static int make_front(struct pack_plan *p, struct err *e)
{
    char *text = NULL;
    size_t n = 0;
    uint64_t n_keys = 0, data;
    FILE *f = open_memstream(&text, &n);
    int rc;

    if (!f)
        return err_set(e, -ENOMEM, "no memory for the metadata of a pack");
    put(f, "GGUF", 4);
    put_u32(f, 3);
    put_u64(f, p->n_dense);
    put_u64(f, 0); /* number of keys, below */
    rc = put_keys(f, p, &n_keys, e);
    data = put_infos(f, p);
    for (off_t at = ftello(f); at % PACK_PAGE; at++)
        fputc(0, f);
    if ((fflush(f) || ferror(f)) && !rc)
        rc = err_set(e, -ENOMEM, "no memory for the metadata of a pack");
    fclose(f);
    if (!rc && n > GGUF_FRONT_MAX)
        rc = err_set(e, -EFBIG, "%s: metadata of %zu bytes is too large", p->m->path, n);
    if (rc) {
        free(text);
        return rc;
    }
    memcpy(text + 16, &n_keys, 8);
    p->front = (uint8_t *)text;
    p->head.dense_front = n;
    p->head.dense_front_xxh = XXH3_64bits(text, n);
    p->head.dense_bytes = n + data;
    for (uint32_t i = 0; i < p->n_dense; i++)
        p->dense_off[i] += n;
    return 0;
}

/* ---- the whole ---- */

static int identify(struct pack_plan *p, struct err *e)
{
    struct pack_head *h = &p->head;
    struct heat_id id;
    uint64_t words[5] = {PACK_VERSION, h->n_nodes};
    XXH3_state_t *x = XXH3_createState();
    XXH128_hash_t hash;
    int rc = x ? heat_identify(p->m->g, &id, e) : err_set(e, -ENOMEM, "no memory for a pack");

    if (!rc) {
        memcpy(h->model, (uint64_t[3]){id.hash[0], id.hash[1], id.bytes}, sizeof h->model);
        memcpy(words + 2, h->model, sizeof h->model);
        XXH3_128bits_reset(x);
        XXH3_128bits_update(x, words, sizeof words);
        for (uint32_t i = 0; i < h->n_originals; i++) { /* not the path: moved, it is the same file */
            const struct pack_original *o = &p->original[i];
            uint64_t w[3] = {o->bytes, (uint64_t)o->mtime_ns, o->front_xxh};
            XXH3_128bits_update(x, w, sizeof w);
        }
        hash = XXH3_128bits_digest(x);
        h->id[0] = hash.high64;
        h->id[1] = hash.low64;
    }
    XXH3_freeState(x);
    return rc;
}

static int make(struct pack_plan *p, uint32_t n_nodes, char **path, struct err *e)
{
    uint8_t *is_expert = NULL;
    uint32_t *at = NULL;
    int rc;

    if ((rc = count(p, n_nodes, path, e)) || (rc = make_room(p, e)) || (rc = fill_originals(p, path, e)) ||
        (rc = identify(p, e)))
        return rc;
    is_expert = calloc(p->head.n_tensors, 1);
    at = calloc(p->head.n_tensors, sizeof *at);
    if (is_expert && at) {
        mark_experts(p->m, is_expert);
        fill_tensors(p, is_expert, at);
        fill_layers(p, at);
        fill_blocks(p);
        rc = make_front(p, e);
    } else {
        rc = err_set(e, -ENOMEM, "no memory for the tensors of a pack");
    }
    free(is_expert);
    free(at);
    p->n_units = p->n_dense + (uint64_t)p->head.n_layers * p->head.n_experts * p->head.n_nodes;
    p->bytes = p->head.file_bytes + p->head.dense_bytes;
    return rc;
}

int pack_plan_make(const struct model *m, uint32_t n_nodes, struct pack_plan *p, struct err *e)
{
    size_t n = gguf_n_shards(m->g);
    char **path = calloc(n, sizeof *path);
    int rc;

    *p = (struct pack_plan){.m = m};
    rc = path ? make(p, n_nodes, path, e) : err_set(e, -ENOMEM, "no memory for %zu paths", n);
    for (size_t i = 0; path && i < n; i++)
        free(path[i]);
    free(path);
    if (rc)
        pack_plan_free(p);
    return rc;
}

void pack_plan_free(struct pack_plan *p)
{
    free(p->index);
    free(p->dense_off);
    free(p->shape);
    free(p->front);
    *p = (struct pack_plan){0};
}

/* ---- units ---- */

static struct pack_unit dense_unit(const struct pack_plan *p, uint32_t i)
{
    struct pack_tensor *t = &p->tensor[i];
    uint64_t bytes = gguf_tensor(p->m->g, t->name)->bytes;

    return (struct pack_unit){.dense = 1,
                              .off = p->dense_off[i],
                              .bytes = bytes,
                              .xxh = &t->xxh,
                              .n = 1,
                              .segment = {{t->original, t->original_off, bytes, 0}}};
}

struct pack_unit pack_plan_unit(const struct pack_plan *p, uint64_t i)
{
    uint32_t n = p->head.n_nodes, node, x, il;
    struct pack_block *b;
    struct pack_unit u;

    if (i < p->n_dense)
        return dense_unit(p, (uint32_t)i);
    i -= p->n_dense;
    b = &p->block[i];
    u = (struct pack_unit){.off = b->off, .bytes = b->bytes, .xxh = &b->xxh};
    node = (uint32_t)(i % n);
    x = (uint32_t)(i / n % p->head.n_experts);
    il = (uint32_t)(i / n / p->head.n_experts);
    for (int k = 0; b->bytes && k < N_MATS; k++) {
        const struct model_matrix *m = &p->m->layer[il].expert[k];
        uint64_t bytes = share_bytes(&p->shape[il].m[k], node, n);

        if (bytes)
            u.segment[u.n++] = (struct pack_segment){
                .original = m->shard,
                .from = m->file_offset + x * m->stride + share_row(m->rows, node, n) * m->row_bytes,
                .bytes = bytes,
                .at = packed_off(&p->shape[il], node, n, k)};
    }
    return u;
}
