#define _GNU_SOURCE
#include "coordinator/pack/verify.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#include "coordinator/pack/pack.h"
#include "coordinator/pack/plan.h"
#include "coordinator/pack/pool.h"

struct verifier {
    struct pack_verify *v;
    const struct pack *p;
    struct pack_file dense, experts;
    const struct pack_tensor **tensor; /* the dense ones */
    uint64_t n_dense, total;
    pthread_mutex_t lock; /* n_bad, bad */
};

static __attribute__((format(printf, 2, 3))) void found_bad(struct verifier *w, const char *fmt, ...)
{
    char line[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&w->lock);
    w->v->n_bad++;
    w->v->bad(w->v->arg, line);
    pthread_mutex_unlock(&w->lock);
}

/* XXH3_64 of a stretch of a file. */
static int hash(const struct pack_file *f, uint64_t off, uint64_t bytes, struct pack_room *r, uint64_t *xxh,
                struct err *e)
{
    XXH3_state_t *x = XXH3_createState();
    int rc = x ? 0 : err_set(e, -ENOMEM, "no memory for a checksum");

    if (x)
        XXH3_64bits_reset(x);
    for (uint64_t at = 0; !rc && at < bytes; at += PACK_OUT) {
        uint64_t n = bytes - at < PACK_OUT ? bytes - at : PACK_OUT;
        rc = pack_file_read(f, r->out, off + at, n, r, e);
        if (!rc)
            XXH3_64bits_update(x, r->out, n);
    }
    if (!rc)
        *xxh = XXH3_64bits_digest(x);
    XXH3_freeState(x);
    return rc;
}

static int dense_piece(struct verifier *w, uint64_t i, struct pack_room *r, _Atomic uint64_t *done)
{
    const struct pack_tensor *t = w->tensor[i];
    const struct gguf_tensor *g = gguf_tensor(w->v->g, t->name);
    struct err e = {0};
    uint64_t xxh;

    if (hash(&w->dense, g->file_offset, g->bytes, r, &xxh, &e))
        found_bad(w, "%s", e.msg);
    else if (xxh != t->xxh)
        found_bad(w, "%s: byte %llu: tensor '%s' is damaged", w->dense.path,
                  (unsigned long long)g->file_offset, t->name);
    atomic_fetch_add(done, g->bytes);
    return 0;
}

static int piece(void *arg, uint64_t i, struct pack_room *r, _Atomic uint64_t *done, struct err *unused)
{
    struct verifier *w = arg;
    const struct pack_head *h = &w->p->head;
    const struct pack_block *b;
    struct err e = {0};
    uint64_t xxh = 0;
    uint32_t node, x;

    (void)unused;
    if (i < w->n_dense)
        return dense_piece(w, i, r, done);
    i -= w->n_dense;
    b = &w->p->block[i];
    node = (uint32_t)(i % h->n_nodes);
    x = (uint32_t)(i / h->n_nodes % h->n_experts);
    i = i / h->n_nodes / h->n_experts;
    if (!b->bytes)
        return 0;
    if (hash(&w->experts, b->off, b->bytes, r, &xxh, &e))
        found_bad(w, "layer %u, expert %u, node %u: %s", (uint32_t)i, x, node, e.msg);
    else if (xxh != b->xxh)
        found_bad(w, "%s: byte %llu: layer %u, expert %u, node %u: its block is damaged", w->experts.path,
                  (unsigned long long)b->off, (uint32_t)i, x, node);
    atomic_fetch_add(done, b->bytes);
    return 0;
}

static int tick(void *arg, uint64_t done, int last, struct err *e)
{
    struct verifier *w = arg;

    (void)e;
    if (w->v->progress)
        w->v->progress(w->v->arg, done, w->total, last);
    w->v->bytes = done;
    return w->v->stop && w->v->stop() ? 1 : 0;
}

static int check_front(struct verifier *w, struct err *e)
{
    const struct pack_head *h = &w->p->head;
    uint64_t xxh;
    int rc = pack_front_hash(gguf_shard_fd(w->v->g, 0), w->dense.path, h->dense_front, &xxh, e);

    if (!rc && xxh != h->dense_front_xxh)
        found_bad(w, "%s: byte 0: its metadata is damaged", w->dense.path);
    return rc;
}

static int list(struct verifier *w, struct err *e)
{
    const struct pack_head *h = &w->p->head;

    w->tensor = calloc(h->n_tensors, sizeof *w->tensor);
    if (!w->tensor)
        return err_set(e, -ENOMEM, "no memory for %u tensors", h->n_tensors);
    for (uint32_t i = 0; i < h->n_tensors; i++)
        if (w->p->tensor[i].dense) {
            w->tensor[w->n_dense++] = &w->p->tensor[i];
            w->total += pack_tensor_bytes(w->p, &w->p->tensor[i]);
        }
    for (uint64_t i = 0; i < (uint64_t)h->n_layers * h->n_experts * h->n_nodes; i++)
        w->total += w->p->block[i].bytes;
    return 0;
}

int pack_verify(struct pack_verify *v, struct err *e)
{
    struct verifier w = {.v = v, .p = gguf_pack(v->g), .dense = {.fd = -1}, .experts = {.fd = -1}};
    struct pack_work work = {.piece = piece, .tick = tick, .arg = &w};
    int rc;

    v->n_bad = v->bytes = 0;
    pthread_mutex_init(&w.lock, NULL);
    if (!(rc = pack_file_read_only(&w.dense, gguf_shard_path(v->g, 0), e)) &&
        !(rc = pack_file_read_only(&w.experts, w.p->path, e)) && !(rc = list(&w, e)) &&
        !(rc = check_front(&w, e))) {
        work.n = w.n_dense + (uint64_t)w.p->head.n_layers * w.p->head.n_experts * w.p->head.n_nodes;
        rc = pack_work(&work, e);
    }
    pack_file_close(&w.dense);
    pack_file_close(&w.experts);
    free(w.tensor);
    pthread_mutex_destroy(&w.lock);
    return rc;
}
