/* Named results of a prompt, written as JSON index and one binary file. */
#include "coordinator/trunk/dump.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <yajl/yajl_gen.h>

struct entry {
    char name[64];
    int integer;
    size_t n[4]; /* rows and what one is; 0 behind the last */
    size_t bytes, cap;
    uint8_t *data;
};
struct dump {
    struct entry *e;
    size_t n, cap;
    int no_memory;
};

struct dump *dump_open(void)
{
    return calloc(1, sizeof(struct dump));
}

void dump_close(struct dump *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < d->n; i++)
        free(d->e[i].data);
    free(d->e);
    free(d);
}

static struct entry *entry_of(struct dump *d, const char *name)
{
    for (size_t i = 0; i < d->n; i++)
        if (!strcmp(d->e[i].name, name))
            return &d->e[i];
    if (d->n == d->cap) {
        size_t cap = d->cap ? 2 * d->cap : 64;
        struct entry *bigger = realloc(d->e, cap * sizeof *bigger);
        if (!bigger)
            return NULL;
        d->e = bigger;
        d->cap = cap;
    }
    memset(&d->e[d->n], 0, sizeof *d->e);
    snprintf(d->e[d->n].name, sizeof d->e[d->n].name, "%s", name);
    return &d->e[d->n++];
}

void dump_rows(struct dump *d, const char *name, int integer, int whole, const void *rows, const size_t n[4])
{
    struct entry *e = entry_of(d, name);
    size_t bytes = 4, before;

    for (int i = 0; i < 4 && (n[i] || !i); i++)
        bytes *= n[i];
    before = e && !whole ? e->bytes : 0;
    if (e && before + bytes > e->cap) {
        size_t cap = 2 * (before + bytes);
        uint8_t *bigger = realloc(e->data, cap);
        if (bigger) {
            e->data = bigger;
            e->cap = cap;
        } else {
            e = NULL;
        }
    }
    if (!e) {
        d->no_memory = 1;
        return;
    }
    if (bytes)
        memcpy(e->data + before, rows, bytes);
    e->bytes = before + bytes;
    e->n[0] = whole ? n[0] : e->n[0] + n[0];
    memcpy(e->n + 1, n + 1, 3 * sizeof *n);
    e->integer = integer;
}

static void text(yajl_gen g, const char *s)
{
    yajl_gen_string(g, (const unsigned char *)s, strlen(s));
}

static void index_of(const struct dump *d, yajl_gen g, const char *arch, const char *kv, uint32_t n_vocab,
                     const uint32_t *tokens, size_t n_tokens)
{
    size_t offset = 0;

    yajl_gen_config(g, yajl_gen_beautify, 1);
    yajl_gen_map_open(g);
    text(g, "arch");
    text(g, arch);
    text(g, "kv");
    text(g, kv);
    text(g, "n_vocab");
    yajl_gen_integer(g, n_vocab);
    text(g, "tokens");
    yajl_gen_array_open(g);
    for (size_t i = 0; i < n_tokens; i++)
        yajl_gen_integer(g, tokens[i]);
    yajl_gen_array_close(g);
    text(g, "tensors_file");
    text(g, "tensors.bin");
    text(g, "tensors");
    yajl_gen_array_open(g);
    for (size_t i = 0; i < d->n; i++) {
        const struct entry *e = &d->e[i];
        yajl_gen_map_open(g);
        text(g, "name");
        text(g, e->name);
        text(g, "dtype");
        text(g, e->integer ? "i32" : "f32");
        text(g, "shape");
        yajl_gen_array_open(g);
        for (int k = 0; k < 4 && (e->n[k] || !k); k++)
            yajl_gen_integer(g, (long long)e->n[k]);
        yajl_gen_array_close(g);
        text(g, "offset");
        yajl_gen_integer(g, (long long)offset);
        yajl_gen_map_close(g);
        offset += e->bytes;
    }
    yajl_gen_array_close(g);
    yajl_gen_map_close(g);
}

int dump_write(struct dump *d, const char *dir, const char *arch, const char *kv, uint32_t n_vocab,
               const uint32_t *tokens, size_t n_tokens, struct err *e)
{
    char path[4096];
    const unsigned char *json;
    size_t n;
    yajl_gen g = NULL;
    FILE *f = NULL;
    int rc = -1;

    if (d->no_memory)
        return err_set(e, -ENOMEM, "%s: no memory for the named buffers", dir);
    if (mkdir(dir, 0777) && errno != EEXIST)
        return err_set(e, -errno, "%s: cannot make the folder: %s", dir, strerror(errno));
    snprintf(path, sizeof path, "%s/tensors.bin", dir);
    f = fopen(path, "wb");
    if (!f)
        goto failed;
    for (size_t i = 0; i < d->n; i++)
        if (fwrite(d->e[i].data, 1, d->e[i].bytes, f) != d->e[i].bytes)
            goto failed;
    if (fclose(f)) {
        f = NULL;
        goto failed;
    }
    snprintf(path, sizeof path, "%s/index.json", dir);
    f = fopen(path, "wb");
    g = yajl_gen_alloc(NULL);
    if (!f || !g)
        goto failed;
    index_of(d, g, arch, kv, n_vocab, tokens, n_tokens);
    if (yajl_gen_get_buf(g, &json, &n) || fwrite(json, 1, n, f) != n)
        goto failed;
    rc = fclose(f);
    f = NULL;
    if (rc)
        goto failed;
    yajl_gen_free(g);
    return 0;
failed:
    rc = err_set(e, -EIO, "%s: cannot write: %s", path, strerror(errno));
    if (f)
        fclose(f);
    if (g)
        yajl_gen_free(g);
    return rc;
}
