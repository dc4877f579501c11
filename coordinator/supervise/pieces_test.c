/* Orders carried out on the files themselves: for every number of nodes that a pack was cut for and every
 * number that runs it, each node's slab gets the rows that it has of the expert; from the original again. */
#define _GNU_SOURCE
#include "coordinator/supervise/pieces.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

#include "coordinator/pack/pack.h"
#include "coordinator/pack/write.h"
#include "tests/test.h"

#define MODEL "tests/golden/models/qwen3moe-iq/model.gguf" /* types differ between matrices and layers */
enum { SLAB = 1 << 20, PLACE = 1, TABLES = 1 << 20 };

static char dir[] = "/tmp/pieces_test.XXXXXX";
static uint8_t slab[MAX_NODES][2 * SLAB];
static struct model *original;
static char *original_bytes;

static void run_order(const struct pieces *p, const struct order *o)
{
    CHECK(o->n_pieces && o->n_pieces <= ORDER_PIECES, "%u pieces", o->n_pieces);
    for (uint32_t i = 0; i < o->n_pieces; i++) {
        const struct order_piece *x = &o->piece[i];
        int other = x->shard >= gguf_n_shards(p->m->g);
        int fd = gguf_shard_fd(other ? original->g : p->m->g, other ? x->shard - p->original : x->shard);
        uint8_t *to = slab[x->seg - 1] + x->dst;

        CHECK(x->need && x->need <= x->bytes && x->dst + x->bytes <= sizeof slab[0], "piece %u", i);
        if (x->flags & PIECE_COPY)
            CHECK(x->bytes == x->need);
        else
            CHECK(x->file_off % 4096 == 0 && x->bytes % 4096 == 0 && x->dst % 4096 == 0, "piece %u", i);
        CHECK(pread(fd, to, x->bytes, (off_t)x->file_off) >= (ssize_t)x->need, "piece %u", i);
        if (x->flags & PIECE_CHECK)
            CHECK(XXH3_64bits(to, x->need) == x->xxh, "piece %u", i);
    }
}

static void compare(const struct pieces *p, uint32_t il, uint32_t x, const char *what)
{
    uint32_t n = p->geo->n_nodes;
    int wrong = 0;

    for (uint32_t k = 0; k < n; k++)
        for (int i = 0; i < N_MATS; i++) {
            const struct expert_layer *l = table_layer(p->tables, il);
            const struct model_matrix *m = &original->layer[il].expert[i];
            struct slab_piece s = slab_piece(l, x, k, n, i);
            wrong |= memcmp(slab[k] + PLACE * SLAB + s.off + s.shift,
                            original_bytes + m->file_offset + x * m->stride +
                                share_row(m->rows, k, n) * m->row_bytes,
                            share_bytes(&l->m[i], k, n));
            CHECK(s.off + s.shift + s.bytes <= slab_bytes(l, k, n) && slab_bytes(l, k, n) <= SLAB);
        }
    CHECK(!wrong, "%s: layer %u expert %u on %u nodes", what, il, x, n);
}

static void fill_layers(struct tables *t, const struct model *m)
{
    for (uint32_t il = 0; il < m->n_layers; il++) {
        struct expert_layer *l = table_layer(t, il);
        l->n_experts = m->n_experts;
        l->packed = gguf_pack(m->g) != NULL;
        for (int k = 0; k < N_MATS; k++) {
            const struct model_matrix *x = &m->layer[il].expert[k];
            l->m[k] = (struct expert_matrix){.type = x->type,
                                             .rows = x->rows,
                                             .cols = x->cols,
                                             .shard = x->shard,
                                             .row_bytes = x->row_bytes,
                                             .file_off = x->file_offset,
                                             .stride = x->stride};
        }
    }
}

/* cut: nodes of the pack; 0: the original itself */
static void all_experts(const struct model *m, uint32_t n, uint32_t cut, struct tables *t)
{
    struct geometry g = {
        .n_nodes = n, .n_layers = m->n_layers, .n_experts = m->n_experts, .n_slabs = 2};
    struct pieces p = {.m = m, .geo = &g, .tables = t, .original = cut ? 7 : MODEL_NONE};
    struct order o = {0};

    memset(t, 0, TABLES);
    *t = (struct tables){.off_slab = 64, .off_layer = 4096};
    for (uint32_t k = 0; k < n; k++)
        *table_slab_off(t, &g, k, PLACE) = PLACE * SLAB;
    fill_layers(t, m);
    for (uint32_t il = 0; il < m->n_layers; il++)
        for (uint32_t x = 0; x < m->n_experts; x++) {
            memset(slab, 0xEE, sizeof slab);
            pieces_expert(&p, il, x, PLACE, &o);
            CHECK(o.layer == il && o.expert == x && !(o.flags & ORDER_SOFT) == !cut);
            if (cut == n)
                CHECK(o.n_pieces <= n && o.piece[0].flags == PIECE_CHECK, "%u pieces", o.n_pieces);
            run_order(&p, &o);
            compare(&p, il, x, "read");
            if (!pieces_expert_again(&p, il, x, PLACE, &o)) {
                CHECK(!cut);
                continue;
            }
            CHECK(cut && !(o.flags & ORDER_SOFT));
            memset(slab, 0xEE, sizeof slab);
            run_order(&p, &o);
            compare(&p, il, x, "read again");
            CHECK_STR(pieces_original_path(&p, il, x), pack_original_path(gguf_pack(m->g), 0));
        }
}

static void trunk(const struct model *m)
{
    static uint8_t to[1 << 22];
    struct pieces p = {.m = m, .original = 7};
    const struct order_piece *x;
    struct order o = {0};

    for (uint32_t i = 0; i < m->n_tensors; i++) {
        const struct model_tensor *t = &m->tensor[i];
        const struct gguf_tensor *was = gguf_tensor(original->g, t->name);

        for (int again = 0; again < 2; again++) {
            CHECK(!again || pieces_trunk_again(&p, i, 8192, &o));
            if (!again)
                pieces_trunk(&p, i, 8192, &o);
            x = &o.piece[0];
            CHECK(o.n_pieces == 1 && x->dst == 8192 && x->need == t->bytes && !x->seg && x->need <= sizeof to);
            CHECK(pread(gguf_shard_fd(again ? original->g : m->g, 0), to, x->need, (off_t)x->file_off) ==
                  (ssize_t)x->need);
            CHECK(!memcmp(to, original_bytes + was->file_offset, t->bytes), "%s", t->name);
            CHECK(again || (x->flags == PIECE_CHECK && x->xxh == XXH3_64bits(to, x->need)), "%s", t->name);
        }
    }
}

static void remove_pack(const char *path)
{
    char file[300];

    snprintf(file, sizeof file, "%s/%s", path, PACK_DENSE);
    unlink(file);
    snprintf(file, sizeof file, "%s/%s", path, PACK_EXPERTS);
    unlink(file);
    rmdir(path);
}

int main(void)
{
    static const uint32_t cuts[] = {1, 2, 3, 5, MAX_NODES};
    struct tables *t = malloc(TABLES);
    struct err e = {0};
    char path[200];
    size_t n;

    if (!mkdtemp(dir) || !t)
        return 1;
    snprintf(path, sizeof path, "%s/p", dir);
    CHECK(!model_open(MODEL, 0, &original, &e), "%s", e.msg);
    n = gguf_shard_bytes(original->g, 0);
    original_bytes = malloc(n);
    CHECK(pread(gguf_shard_fd(original->g, 0), original_bytes, n, 0) == (ssize_t)n);
    for (uint32_t k = 1; k <= MAX_NODES; k++)
        all_experts(original, k, 0, t);
    for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
        struct pack_options o = {.m = original, .dir = path, .n_nodes = cuts[c]};
        struct pack_report r;
        struct model *m = NULL;

        CHECK(!pack_write(&o, &r, &e) && !model_open(path, 0, &m, &e), "%s", e.msg);
        for (uint32_t k = 1; m && k <= MAX_NODES; k++)
            all_experts(m, k, cuts[c], t);
        if (m)
            trunk(m);
        model_close(m);
        remove_pack(path);
    }
    model_close(original);
    free(original_bytes);
    free(t);
    rmdir(dir);
    return test_end();
}
