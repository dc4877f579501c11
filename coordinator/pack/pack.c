/* Reads the head and the index of an experts file. The file is hostile until the last check has
 * passed: no count of it is used before it was compared with its limit and with the file's size. */
#define _GNU_SOURCE
#include "coordinator/pack/pack.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "coordinator/model/utf8.h"
#include "kernels/type/type.h"
#include "shm/size.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "packs are read as they lie in the file");
#define ORIGINAL_MAX (1ull << 60) /* bytes: sums of a few such sizes fit 64 bits */
#define llu(x) ((unsigned long long)(x))

uint64_t pack_head_check(const struct pack_head *h)
{
    return XXH3_64bits(h, offsetof(struct pack_head, check));
}

uint64_t pack_index_check(const struct pack_head *h, const void *index)
{
    return XXH3_64bits(index, pack_index_bytes(h));
}

/* ---- the head ---- */

static int check_counts(const struct pack *p, struct err *e)
{
    const struct pack_head *h = &p->head;

    if (!h->n_nodes || h->n_nodes > MAX_NODES)
        return err_set(e, -EINVAL, "%s: byte 12: for %u nodes (1 to %u)", p->path, h->n_nodes, MAX_NODES);
    if (!h->n_layers || h->n_layers > PACK_LAYERS_MAX || !h->n_experts ||
        h->n_experts > PACK_EXPERTS_MAX)
        return err_set(e, -EINVAL, "%s: byte 16: %u layers of %u experts (1 to %d, 1 to %d)", p->path,
                       h->n_layers, h->n_experts, PACK_LAYERS_MAX, PACK_EXPERTS_MAX);
    if (!h->n_tensors || h->n_tensors > PACK_TENSORS_MAX || !h->n_originals ||
        h->n_originals > PACK_ORIGINALS_MAX || h->text_bytes > PACK_TEXT_MAX ||
        pack_index_bytes(h) > PACK_INDEX_MAX)
        return err_set(e, -EINVAL, "%s: byte 24: %u tensors, %u original files, %llu bytes of text: too many",
                       p->path, h->n_tensors, h->n_originals, llu(h->text_bytes));
    return 0;
}

static int check_head(const struct pack *p, uint64_t file_bytes, struct err *e)
{
    const struct pack_head *h = &p->head;

    if (!memcmp(h->magic, PACK_MAGIC_PART, sizeof h->magic))
        return err_set(e, -EINVAL, "%s: is not finished; conclave pack goes on with it", p->path);
    if (memcmp(h->magic, PACK_MAGIC, sizeof h->magic))
        return err_set(e, -EINVAL, "%s: byte 0: no experts file of a pack", p->path);
    if (h->version != PACK_VERSION)
        return err_set(e, -EINVAL, "%s: byte 8: version %u of the format (%d); pack the model again",
                       p->path, h->version, PACK_VERSION);
    if (h->check != pack_head_check(h))
        return err_set(e, -EINVAL, "%s: byte 0: the head is damaged; pack the model again", p->path);
    if (check_counts(p, e))
        return -EINVAL;
    if (h->file_bytes != file_bytes)
        return err_set(e, -EINVAL, "%s: byte %llu: the file ends here, its head says %llu bytes", p->path,
                       llu(file_bytes), llu(h->file_bytes));
    if (pack_blocks_at(h) > file_bytes)
        return err_set(e, -EINVAL, "%s: byte %u: the index of %llu bytes goes past the file's end", p->path,
                       PACK_PAGE, llu(pack_index_bytes(h)));
    return 0;
}

/* ---- the index ---- */

static uint64_t at(const struct pack *p, const void *record)
{
    return PACK_PAGE + (uint64_t)((const char *)record - (const char *)p->index);
}

static int good_name(const char *s)
{
    size_t n = strnlen(s, PACK_NAME), len;

    if (!n || n == PACK_NAME)
        return 0;
    for (size_t i = 0; i < n; i += len)
        if ((unsigned char)s[i] < 32 || s[i] == 127 || utf8_next(s + i, n - i, &len) != UTF8_OK)
            return 0;
    return 1;
}

uint64_t pack_tensor_bytes(const struct pack *p, const struct pack_tensor *t)
{
    return p->row_bytes[t - p->tensor] * t->dims[1] * t->dims[2] * t->dims[3]; /* checked: fits */
}

static int check_tensor(struct pack *p, const struct pack_tensor *t, struct err *e)
{
    const struct type_info *ti = type_info(t->type);
    uint64_t bytes, end;

    if (!good_name(t->name))
        return err_set(e, -EINVAL, "%s: byte %llu: bad name of a tensor", p->path, llu(at(p, t)));
    if (!ti || t->n_dims < 1 || t->n_dims > 4 || t->dense > 1 || t->original >= p->head.n_originals)
        return err_set(e, -EINVAL, "%s: byte %llu: tensor '%s': type %u, %u dimensions, original %u",
                       p->path, llu(at(p, t)), t->name, t->type, t->n_dims, t->original);
    for (uint32_t d = 0; d < 4; d++)
        if (!t->dims[d] || t->dims[d] > INT64_MAX || (d >= t->n_dims && t->dims[d] != 1))
            return err_set(e, -EINVAL, "%s: byte %llu: tensor '%s': dimension %u is %llu", p->path,
                           llu(at(p, t)), t->name, d, llu(t->dims[d]));
    if (type_row_bytes(t->type, t->dims[0], &p->row_bytes[t - p->tensor]) ||
        u64_mul(p->row_bytes[t - p->tensor], t->dims[1], &bytes) || u64_mul(bytes, t->dims[2], &bytes) ||
        u64_mul(bytes, t->dims[3], &bytes) || u64_add(t->original_off, bytes, &end) ||
        end > p->original[t->original].bytes)
        return err_set(e, -EINVAL, "%s: byte %llu: tensor '%s': does not lie in its original", p->path,
                       llu(at(p, t)), t->name);
    return 0;
}

static int check_original(const struct pack *p, const struct pack_original *o, struct err *e)
{
    uint64_t end = (uint64_t)o->path_at + o->path_n;

    if (o->bytes > ORIGINAL_MAX || o->front > o->bytes || !o->path_n || o->path_n >= 4096 ||
        end >= p->head.text_bytes || p->text[end] || memchr(p->text + o->path_at, 0, o->path_n))
        return err_set(e, -EINVAL, "%s: byte %llu: the record of an original file makes no sense", p->path,
                       llu(at(p, o)));
    return 0;
}

static int check_layer(struct pack *p, uint32_t il, struct err *e)
{
    const struct pack_layer *l = &p->layer[il];
    struct expert_layer *s = &p->shape[il];

    if (l->n_experts > p->head.n_experts)
        return err_set(e, -EINVAL, "%s: byte %llu: layer %u has %u experts (at most %u)", p->path,
                       llu(at(p, l)), il, l->n_experts, p->head.n_experts);
    s->n_experts = l->n_experts;
    s->packed = 1;
    for (int k = 0; l->n_experts && k < N_MATS; k++) {
        const struct pack_matrix *m = &l->m[k];
        const struct pack_tensor *t = &p->tensor[m->tensor < p->head.n_tensors ? m->tensor : 0];

        if (m->tensor >= p->head.n_tensors || t->dense || t->dims[2] != l->n_experts || t->dims[3] != 1 ||
            !m->rows || (uint64_t)m->first_row + m->rows > t->dims[1] || t->dims[0] > UINT32_MAX)
            return err_set(e, -EINVAL, "%s: byte %llu: layer %u: matrix %d does not fit its tensor",
                           p->path, llu(at(p, l)), il, k);
        s->m[k] = (struct expert_matrix){.type = t->type,
                                         .rows = m->rows,
                                         .cols = (uint32_t)t->dims[0],
                                         .row_bytes = p->row_bytes[m->tensor]};
    }
    return 0;
}

/* Blocks lie one after the other, so that none can overlap another. */
static int check_blocks(const struct pack *p, uint32_t il, uint64_t *end, struct err *e)
{
    const struct pack_layer *l = &p->layer[il];

    for (uint32_t x = 0; x < p->head.n_experts; x++)
        for (uint32_t k = 0; k < p->head.n_nodes; k++) {
            const struct pack_block *b = pack_block(p, il, x, k);
            uint64_t want = x < l->n_experts ? packed_bytes(&p->shape[il], k, p->head.n_nodes) : 0;

            if (b->bytes != want || (x >= l->n_experts && b->off))
                return err_set(e, -EINVAL,
                               "%s: byte %llu: layer %u, expert %u, node %u: a block of %llu bytes (%llu)",
                               p->path, llu(at(p, b)), il, x, k, llu(b->bytes), llu(want));
            if (x >= l->n_experts)
                continue;
            if (b->off % PACK_PAGE || b->off < *end || b->off > p->head.file_bytes ||
                pack_pages(b->bytes) > p->head.file_bytes - b->off)
                return err_set(e, -EINVAL,
                               "%s: byte %llu: layer %u, expert %u, node %u: its block at %llu overlaps "
                               "another, or goes past the file's end",
                               p->path, llu(at(p, b)), il, x, k, llu(b->off));
            *end = b->off + pack_pages(b->bytes);
        }
    return 0;
}

static int check_index(struct pack *p, struct err *e)
{
    const struct pack_head *h = &p->head;
    uint64_t end = pack_blocks_at(h);
    int rc = 0;

    if (h->index_xxh != pack_index_check(h, p->index))
        return err_set(e, -EINVAL, "%s: byte %u: the index is damaged; pack the model again", p->path,
                       PACK_PAGE);
    p->tensor = p->index;
    p->layer = (const void *)(p->tensor + h->n_tensors);
    p->block = (const void *)(p->layer + h->n_layers);
    p->original = (const void *)(p->block + (uint64_t)h->n_layers * h->n_experts * h->n_nodes);
    p->text = (const void *)(p->original + h->n_originals);
    p->row_bytes = calloc(h->n_tensors, sizeof *p->row_bytes);
    p->shape = calloc(h->n_layers, sizeof *p->shape);
    if (!p->row_bytes || !p->shape)
        return err_set(e, -ENOMEM, "%s: no memory for its index", p->path);
    for (uint32_t i = 0; i < h->n_originals && !rc; i++)
        rc = check_original(p, &p->original[i], e);
    for (uint32_t i = 0; i < h->n_tensors && !rc; i++)
        rc = check_tensor(p, &p->tensor[i], e);
    for (uint32_t i = 0; i < h->n_layers && !rc; i++)
        rc = check_layer(p, i, e);
    for (uint32_t i = 0; i < h->n_layers && !rc; i++)
        rc = check_blocks(p, i, &end, e);
    return rc;
}

/* ---- opening ---- */

static int read_at(const struct pack *p, void *to, size_t n, uint64_t off, struct err *e)
{
    char *out = to;

    while (n) {
        ssize_t k = pread(p->fd, out, n, (off_t)off);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return err_set(e, k ? -errno : -EIO, "%s: byte %llu: cannot read: %s", p->path, llu(off),
                           k ? strerror(errno) : "the file ends here");
        out += k;
        off += (uint64_t)k;
        n -= (size_t)k;
    }
    return 0;
}

static struct pack *new_pack(const char *path, struct err *e)
{
    struct pack *p = calloc(1, sizeof *p);

    if (p)
        p->path = strdup(path);
    if (!p || !p->path) {
        free(p);
        err_set(e, -ENOMEM, "%s: no memory", path);
        return NULL;
    }
    p->fd = -1;
    return p;
}

void pack_close(struct pack *p)
{
    if (!p)
        return;
    if (p->fd >= 0)
        close(p->fd);
    free(p->path);
    free(p->index);
    free(p->row_bytes);
    free(p->shape);
    free(p);
}

static int open_file(struct pack *p, uint64_t *bytes, struct err *e)
{
    struct stat st;

    p->fd = open(p->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (p->fd < 0 || fstat(p->fd, &st))
        return err_set(e, -errno, "%s: cannot open: %s", p->path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return err_set(e, -EINVAL, "%s: is no regular file", p->path);
    *bytes = (uint64_t)st.st_size;
    if (*bytes < PACK_PAGE)
        return err_set(e, -EINVAL, "%s: byte %llu: the file ends inside its head", p->path, llu(*bytes));
    return 0;
}

int pack_open(const char *path, struct pack **out, struct err *e)
{
    struct pack *p = new_pack(path, e);
    uint64_t bytes = 0;
    int rc;

    if (!p)
        return -ENOMEM;
    rc = open_file(p, &bytes, e);
    if (!rc)
        rc = read_at(p, &p->head, sizeof p->head, 0, e);
    if (!rc)
        rc = check_head(p, bytes, e);
    if (!rc && !(p->index = malloc(pack_index_bytes(&p->head))))
        rc = err_set(e, -ENOMEM, "%s: no memory for its index", path);
    if (!rc)
        rc = read_at(p, p->index, pack_index_bytes(&p->head), PACK_PAGE, e);
    if (!rc)
        rc = check_index(p, e);
    if (rc) {
        pack_close(p);
        return rc;
    }
    *out = p;
    return 0;
}

int pack_parse(const char *name, const void *data, size_t n, uint64_t file_bytes, struct pack **out,
               struct err *e)
{
    struct pack *p = new_pack(name, e);
    int rc = 0;

    if (!p)
        return -ENOMEM;
    if (n < PACK_PAGE)
        rc = err_set(e, -EINVAL, "%s: byte %zu: the file ends inside its head", name, n);
    if (!rc) {
        memcpy(&p->head, data, sizeof p->head);
        rc = check_head(p, file_bytes, e);
    }
    if (!rc && n < PACK_PAGE + pack_index_bytes(&p->head))
        rc = err_set(e, -EINVAL, "%s: byte %zu: the bytes given end in the index", name, n);
    if (!rc && !(p->index = malloc(pack_index_bytes(&p->head))))
        rc = err_set(e, -ENOMEM, "%s: no memory for its index", name);
    if (!rc) {
        memcpy(p->index, (const char *)data + PACK_PAGE, pack_index_bytes(&p->head));
        rc = check_index(p, e);
    }
    if (rc) {
        pack_close(p);
        return rc;
    }
    *out = p;
    return 0;
}

/* ---- looking things up ---- */

uint64_t pack_original_at(const struct pack *p, uint32_t layer, uint32_t expert, int mat,
                          uint32_t *original)
{
    const struct pack_matrix *m = &p->layer[layer].m[mat];
    const struct pack_tensor *t = &p->tensor[m->tensor];

    *original = t->original;
    return t->original_off + (expert * t->dims[1] + m->first_row) * p->row_bytes[m->tensor];
}

const struct pack_tensor *pack_tensor(const struct pack *p, const char *name)
{
    for (uint32_t i = 0; i < p->head.n_tensors; i++)
        if (!strcmp(p->tensor[i].name, name))
            return &p->tensor[i];
    return NULL;
}

uint64_t pack_experts_bytes(const struct pack *p)
{
    return p->head.file_bytes - pack_blocks_at(&p->head);
}
