/* Packs of the golden models hold every byte of them where the index says; a head or an index that says
 * anything impossible is refused with one line; a pack knows its originals. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "coordinator/model/model.h"
#include "coordinator/pack/original.h"
#include "coordinator/pack/pack.h"
#include "coordinator/pack/verify.h"
#include "coordinator/pack/write.h"
#include "coordinator/residency/heat_file.h"
#include "tests/test.h"

static char dir[] = "/tmp/pack_test.XXXXXX";

static char *read_file(const char *path, size_t *n)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    char *b = NULL;

    if (fd >= 0 && !fstat(fd, &st) && (b = malloc((size_t)st.st_size + 1)))
        CHECK(read(fd, b, (size_t)st.st_size) == st.st_size, "%s", path);
    CHECK(b, "%s cannot be read", path);
    *n = b ? (size_t)st.st_size : 0;
    if (fd >= 0)
        close(fd);
    return b;
}

static void write_file(const char *path, const void *b, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    CHECK(fd >= 0 && write(fd, b, n) == (ssize_t)n, "%s", path);
    close(fd);
}

static void name(char *out, size_t cap, const char *file)
{
    snprintf(out, cap, "%s/p/%s", dir, file);
}

static void clear(void)
{
    static const char *const file[] = {PACK_DENSE, PACK_EXPERTS, PACK_DENSE ".part", PACK_EXPERTS ".part"};
    char path[300];

    for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
        name(path, sizeof path, file[i]);
        unlink(path);
    }
    name(path, sizeof path, "");
    rmdir(path);
}

static int make(const char *model, uint32_t nodes, struct pack_report *r, struct err *e)
{
    struct model *m = NULL;
    char to[300];
    struct pack_options o = {.dir = to, .n_nodes = nodes};
    int rc = model_open(model, MODEL_ANY_TYPE, &m, e);

    name(to, sizeof to, "");
    o.m = m;
    if (!rc)
        rc = pack_write(&o, r, e);
    model_close(m);
    return rc;
}

/* ---- every byte ---- */

static void compare_block(const struct model *m, char *const *file, const struct pack *p, const char *pack,
                          uint32_t il, uint32_t x, uint32_t k)
{
    const struct pack_block *b = pack_block(p, il, x, k);
    uint32_t n = p->head.n_nodes;
    uint64_t end = 0;
    int wrong = 0;

    for (int i = 0; i < N_MATS; i++) {
        const struct model_matrix *w = &m->layer[il].expert[i];
        uint32_t r0 = share_row(w->rows, k, n);
        uint64_t bytes = share_bytes(&p->shape[il].m[i], k, n), off = packed_off(&p->shape[il], k, n, i);
        uint32_t original;

        wrong |= memcmp(pack + b->off + off,
                        file[w->shard] + w->file_offset + x * w->stride + r0 * w->row_bytes, bytes);
        wrong |= pack_original_at(p, il, x, i, &original) != w->file_offset + x * w->stride;
        wrong |= original != w->shard;
        for (; end < off; end++)
            wrong |= pack[b->off + end] != 0;
        end = off + bytes;
    }
    for (; end < pack_pages(b->bytes); end++)
        wrong |= pack[b->off + end] != 0;
    CHECK(!wrong, "%s: layer %u expert %u node %u of %u", m->path, il, x, k, n);
    CHECK(b->xxh == XXH3_64bits(pack + b->off, b->bytes));
}

static void compare_dense(const struct gguf *was, char *const *file, const struct gguf *is, const char *dense)
{
    const struct pack *p = gguf_pack(is);
    size_t n_dense = 0;

    CHECK_EQ(gguf_n_tensors(is), gguf_n_tensors(was));
    for (size_t i = 0; i < gguf_n_tensors(was); i++) {
        const struct gguf_tensor *a = gguf_tensor_at(was, i), *b = gguf_tensor(is, a->name.s);

        CHECK(b && a->type == b->type && a->bytes == b->bytes && !memcmp(a->dims, b->dims, sizeof a->dims),
              "%s", a->name.s);
        if (!b || b->shard)
            continue;
        n_dense++;
        CHECK(!memcmp(file[a->shard] + a->file_offset, dense + b->file_offset, a->bytes), "%s", a->name.s);
        CHECK(pack_tensor(p, a->name.s)->xxh == XXH3_64bits(dense + b->file_offset, b->bytes));
    }
    CHECK(n_dense > 0 && n_dense < gguf_n_tensors(was));
    for (size_t i = 0; i < gguf_n_keys(was); i++) { /* every key, with the same value */
        const char *key = gguf_key_at(was, i).s;
        struct gguf_str s, t;

        if (!strncmp(key, "split.", 6) || !strcmp(key, "general.alignment"))
            continue;
        CHECK(gguf_kind(is, key) == gguf_kind(was, key), "%s", key);
        if (!gguf_string(was, key, &s))
            CHECK(!gguf_string(is, key, &t) && t.n == s.n && !memcmp(s.s, t.s, s.n), "%s", key);
    }
}

static int nothing_bad;
static void bad(void *arg, const char *line)
{
    (void)arg;
    nothing_bad = 0;
    printf("%s\n", line);
}

static void whole(const char *path, uint32_t nodes)
{
    struct model *was = NULL, *is = NULL;
    struct pack_report r;
    struct err e = {0};
    struct heat_id a, b;
    char p_path[300], *file[8] = {0}, *pack, *dense;
    struct pack_verify v = {.bad = bad};
    size_t n;

    clear();
    CHECK(!make(path, nodes, &r, &e) && !r.was_there, "%s: %s", path, e.msg);
    CHECK(!model_open(path, MODEL_ANY_TYPE, &was, &e), "%s", e.msg);
    name(p_path, sizeof p_path, "");
    CHECK(!model_open(p_path, MODEL_ANY_TYPE, &is, &e), "%s", e.msg);
    if (!was || !is)
        return;
    for (size_t i = 0; i < gguf_n_shards(was->g); i++)
        file[i] = read_file(gguf_shard_path(was->g, i), &n);
    name(p_path, sizeof p_path, PACK_EXPERTS);
    pack = read_file(p_path, &n);
    name(p_path, sizeof p_path, PACK_DENSE);
    dense = read_file(p_path, &n);
    compare_dense(was->g, file, is->g, dense);
    for (uint32_t il = 0; il < was->n_layers; il++)
        for (uint32_t x = 0; x < was->n_experts; x++)
            for (uint32_t k = 0; k < nodes; k++)
                compare_block(was, file, gguf_pack(is->g), pack, il, x, k);
    CHECK(!heat_identify(was->g, &a, &e) && !heat_identify(is->g, &b, &e) && !memcmp(&a, &b, sizeof a),
          "the heat file's identity differs");
    v.g = is->g;
    nothing_bad = 1;
    CHECK(!pack_verify(&v, &e) && !v.n_bad && nothing_bad && v.bytes, "%s", e.msg);
    CHECK(!pack_originals_match(gguf_pack(is->g), &e), "%s", e.msg);
    for (size_t i = 0; i < gguf_n_shards(was->g); i++)
        free(file[i]);
    free(pack);
    free(dense);
    model_close(was);
    model_close(is);
}

/* ---- crafted files ---- */

static char *bytes; /* of a good experts file */
static size_t n_bytes;

static struct pack_head *head(void)
{
    return (struct pack_head *)bytes;
}
static void *index_at(void)
{
    return bytes + PACK_PAGE;
}

/* Refused with a line that has these words; the bytes are good again afterwards. */
static void refused(const char *good, const char *words, int mend)
{
    struct pack *p = NULL;
    struct err e = {0};
    int rc;

    if (mend) { /* as a hostile writer would */
        if (pack_index_bytes(head()) <= n_bytes - PACK_PAGE)
            head()->index_xxh = pack_index_check(head(), index_at());
        head()->check = pack_head_check(head());
    }
    rc = pack_parse("x", bytes, n_bytes, n_bytes, &p, &e);
    CHECK(rc < 0 && !p && strstr(e.msg, words) && strstr(e.msg, "x: ") && !strchr(e.msg, '\n'),
          "'%s', wanted '%s'", e.msg, words);
    memcpy(bytes, good, n_bytes);
}

static void crafted(void)
{
    char path[300], *good;
    struct pack *p = NULL;
    struct err e = {0};
    struct pack_tensor *t;
    struct pack_layer *l;
    struct pack_block *b;
    struct pack_original *o;

    name(path, sizeof path, PACK_EXPERTS);
    bytes = read_file(path, &n_bytes);
    good = malloc(n_bytes);
    memcpy(good, bytes, n_bytes);
    CHECK(!pack_parse("x", bytes, n_bytes, n_bytes, &p, &e) && p, "%s", e.msg);
    pack_close(p);
    t = index_at();
    l = (void *)(t + head()->n_tensors);
    b = (void *)(l + head()->n_layers);
    o = (void *)(b + (size_t)head()->n_layers * head()->n_experts * head()->n_nodes);
#define BAD(change, words)                                                                         \
    do {                                                                                           \
        change;                                                                                    \
        refused(good, words, 1);                                                                   \
    } while (0)
    head()->file_bytes ^= 1;
    refused(good, "the head is damaged", 0);
    t[0].dims[0] ^= 1;
    refused(good, "the index is damaged", 0);
    BAD(head()->magic[0] = 'X', "no experts file");
    BAD(memcpy(head()->magic, PACK_MAGIC_PART, 8), "not finished");
    BAD(head()->version = 2, "version 2");
    BAD(head()->n_nodes = 0, "0 nodes");
    BAD(head()->n_nodes = MAX_NODES + 1, "9 nodes");
    BAD(head()->n_layers = 0, "0 layers");
    BAD(head()->n_layers = PACK_LAYERS_MAX + 1, "layers");
    BAD(head()->n_experts = PACK_EXPERTS_MAX + 1, "experts");
    BAD(head()->n_tensors = UINT32_MAX, "too many");
    BAD(head()->n_originals = 0, "original");
    BAD(head()->text_bytes = UINT64_MAX, "too many");
    BAD(head()->file_bytes += PACK_PAGE, "the file ends here");
    BAD(head()->text_bytes += 1 << 25, "goes past the file's end");
    BAD(memset(t[0].name, 0, PACK_NAME), "bad name");
    BAD(memset(t[0].name, 'a', PACK_NAME), "bad name");
    BAD(t[0].name[0] = '\n', "bad name");
    BAD(t[0].type = 77, "type 77");
    BAD(t[0].n_dims = 5, "5 dimensions");
    BAD(t[0].dims[1] = 0, "dimension 1 is 0");
    BAD(t[0].dims[3] = 2, "dimension 3 is 2");
    BAD(t[0].dims[0] = INT64_MAX & ~255ull, "does not lie in its original");
    BAD(t[0].original = 9, "original 9");
    BAD(t[0].original_off = UINT64_MAX, "does not lie in its original");
    BAD(l[1].n_experts = 4000, "layer 1 has 4000 experts");
    BAD(l[1].n_experts--, "layer 1: matrix 0 does not fit");
    BAD(l[1].m[2].tensor = UINT32_MAX, "layer 1: matrix 2 does not fit");
    BAD(l[1].m[2].tensor = 0, "layer 1: matrix 2 does not fit"); /* a dense one */
    BAD(l[0].m[1].first_row = 1, "layer 0: matrix 1 does not fit");
    BAD(l[0].m[1].rows = 0, "layer 0: matrix 1 does not fit");
    BAD(l[0].m[1].rows--, "a block of");
    BAD(b[3].bytes--, "a block of");
    BAD(b[3].off = b[2].off, "overlaps");
    BAD(b[3].off += 512, "overlaps");
    BAD(b[3].off = 0, "overlaps");
    BAD(b[3].off = UINT64_MAX - PACK_PAGE + 1, "past the file's end");
    BAD(b[3].off = n_bytes, "past the file's end");
    BAD(o[0].bytes = UINT64_MAX, "original file");
    BAD(o[0].front = o[0].bytes + 1, "original file");
    BAD(o[0].path_at = 1 << 20, "original file");
    BAD(o[0].path_n = 0, "original file");
    BAD(o[0].path_n--, "original file");
#undef BAD
    for (size_t n = 0; n < n_bytes; n += n < 4 * PACK_PAGE ? 997 : 77777) { /* cut off */
        e = (struct err){0};
        CHECK(pack_parse("x", bytes, n, n, &p, &e) < 0 && e.msg[0], "%zu bytes", n);
    }
    free(bytes);
    free(good);
}

/* ---- files that do not belong together, and originals ---- */

static void refused_folder(const char *words)
{
    struct gguf *g = NULL;
    struct err e = {0};
    char path[300];

    name(path, sizeof path, "");
    CHECK(gguf_open(path, &g, &e) < 0 && strstr(e.msg, words) && !strchr(e.msg, '\n'), "'%s', wanted '%s'",
          e.msg, words);
}

static void mixed(const char *one, const char *other)
{
    struct pack_report r;
    struct err e = {0};
    char experts[300], *b, *c;
    size_t n, m;

    clear();
    CHECK(!make(one, 2, &r, &e), "%s", e.msg);
    name(experts, sizeof experts, PACK_EXPERTS);
    b = read_file(experts, &n);
    clear();
    CHECK(!make(other, 2, &r, &e), "%s", e.msg);
    c = read_file(experts, &m);
    write_file(experts, b, n);
    refused_folder("belongs to another pack");
    CHECK(make(one, 2, &r, &e) < 0 && strstr(e.msg, "of another model"), "%s", e.msg);
    write_file(experts, c, m - PACK_PAGE);
    refused_folder("the file ends here");
    unlink(experts);
    refused_folder("experts.pack: cannot open");
    e = (struct err){0};
    CHECK(make(other, 2, &r, &e) < 0 && strstr(e.msg, "will not be written over"), "%s", e.msg);
    free(b);
    free(c);
}

static void originals(const char *model)
{
    char copy[300], path[300], *b;
    struct pack_report r;
    struct gguf *g = NULL;
    struct err e = {0};
    struct timespec later[2] = {{.tv_sec = 5}, {.tv_sec = 5}};
    size_t n;

    b = read_file(model, &n);
    snprintf(copy, sizeof copy, "%s/model.gguf", dir);
    write_file(copy, b, n);
    clear();
    CHECK(!make(copy, 1, &r, &e), "%s", e.msg);
    name(path, sizeof path, "");
    CHECK(!gguf_open(path, &g, &e), "%s", e.msg);
    CHECK(!pack_originals_match(gguf_pack(g), &e), "%s", e.msg);
    CHECK(!utimensat(AT_FDCWD, copy, later, 0));
    CHECK(pack_originals_match(gguf_pack(g), &e) < 0 && strstr(e.msg, "has changed"), "%s", e.msg);
    b[n / 2] ^= 1; /* the same size and time: the metadata tells */
    b[100] ^= 1;
    write_file(copy, b, n);
    later[1] = later[0] = (struct timespec){gguf_pack(g)->original[0].mtime_ns / 1000000000,
                                            gguf_pack(g)->original[0].mtime_ns % 1000000000};
    CHECK(!utimensat(AT_FDCWD, copy, later, 0));
    e = (struct err){0};
    CHECK(pack_originals_match(gguf_pack(g), &e) < 0 && strstr(e.msg, "another model"), "%s", e.msg);
    unlink(copy);
    e = (struct err){0};
    CHECK(pack_originals_match(gguf_pack(g), &e) < 0 && strstr(e.msg, "cannot open"), "%s", e.msg);
    gguf_close(g);
    free(b);
}

int main(void)
{
    static const char *const model[] = {
        "tests/golden/tiny/olmoe/model.gguf", "tests/golden/tiny/qwen3moe/model.gguf",
        "tests/golden/models/qwen3moe-iq/model.gguf", "tests/demo/story-moe-q4_k_m.gguf"};

    if (!mkdtemp(dir))
        return 1;
    for (size_t i = 0; i < sizeof model / sizeof *model; i++)
        for (uint32_t nodes = 1; nodes <= 3; nodes++)
            whole(model[i], nodes);
    whole(model[1], MAX_NODES); /* shares without a row */
    clear();
    whole(model[1], 2);
    crafted();
    mixed(model[1], model[0]);
    originals(model[1]);
    clear();
    rmdir(dir);
    return test_end();
}
