/* Bytes go from the originals into two files, by threads that each take the next stretch (pack_unit).
 * The checksums of what is done are written into the unfinished file's index every now and then: they
 * are all that a later run needs, since it reads the stretches and compares. A lost or torn index thus
 * costs work, never bytes. */
#define _GNU_SOURCE
#include "coordinator/pack/write.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "coordinator/model/gguf_front.h"
#include "coordinator/pack/pack.h"
#include "coordinator/pack/plan.h"
#include "coordinator/pack/pool.h"

/* Checksums are saved this often: */
#define SAVE_NS 1000000000ull
#define SAVE_BYTES (1ull << 30) /* the index of a large model takes megabytes */

enum { DENSE, EXPERTS, N_FILES };
static const char *const final_name[N_FILES] = {PACK_DENSE, PACK_EXPERTS};

struct writer {
    const struct pack_options *o;
    struct pack_plan plan;
    char *path[N_FILES], *part[N_FILES];
    struct pack_file file[N_FILES];
    int is_new[N_FILES];
    int new_dir;
    struct pack_file *source; /* by original */
    uint64_t *found;          /* by unit: the checksum that an earlier run left; 0: none */
    uint64_t *xxh;            /* by unit: of what is in the file, once done[] says so */
    _Atomic unsigned char *done;
    _Atomic uint64_t kept;
    uint8_t *image; /* head and index as they are saved: whole pages */
    uint64_t saved_ns, saved_bytes;
};

static uint64_t clock_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static uint64_t image_bytes(const struct writer *w)
{
    return pack_blocks_at(&w->plan.head);
}

/* ---- one unit ---- */

/* Bytes [at, at + n) of the unit into out; zeros where no segment lies. */
static int gather(struct writer *w, const struct pack_unit *u, uint64_t at, uint64_t n, struct pack_room *r,
                  struct err *e)
{
    uint64_t end = at;

    for (int i = 0; i < u->n; i++) {
        const struct pack_segment *s = &u->segment[i];
        uint64_t from = s->at > at ? s->at : at, to = s->at + s->bytes;
        int rc;

        if (to > at + n)
            to = at + n;
        if (from >= to)
            continue;
        memset(r->out + (end - at), 0, from - end);
        rc = pack_file_read(&w->source[s->original], r->out + (from - at), s->from + (from - s->at),
                            to - from, r, e);
        if (rc)
            return rc;
        end = to;
    }
    memset(r->out + (end - at), 0, pack_pages(n) - (end - at));
    return 0;
}

/* Reads what is there and compares. 1: it is this unit's bytes. 0: not. A file that cannot be read is
 * an error only when it is written. */
static int is_there(struct writer *w, const struct pack_unit *u, uint64_t want, XXH3_state_t *x,
                    struct pack_room *r)
{
    struct err ignored = {0};

    XXH3_64bits_reset(x);
    for (uint64_t at = 0; at < u->bytes; at += PACK_OUT) {
        uint64_t n = u->bytes - at < PACK_OUT ? u->bytes - at : PACK_OUT;
        if (pack_file_read(&w->file[u->dense ? DENSE : EXPERTS], r->out, u->off + at, n, r, &ignored))
            return 0;
        XXH3_64bits_update(x, r->out, n);
    }
    return XXH3_64bits_digest(x) == want;
}

static int copy_unit(struct writer *w, const struct pack_unit *u, uint64_t *xxh, XXH3_state_t *x,
                     struct pack_room *r, struct err *e)
{
    XXH3_64bits_reset(x);
    for (uint64_t at = 0; at < u->bytes; at += PACK_OUT) {
        uint64_t n = u->bytes - at < PACK_OUT ? u->bytes - at : PACK_OUT;
        int rc = gather(w, u, at, n, r, e);

        if (rc)
            return rc;
        XXH3_64bits_update(x, r->out, n);
        rc = pack_file_write(&w->file[u->dense ? DENSE : EXPERTS], r->out, u->off + at, pack_pages(n), e);
        if (rc)
            return rc;
    }
    *xxh = XXH3_64bits_digest(x);
    return 0;
}

static int piece(void *arg, uint64_t i, struct pack_room *r, _Atomic uint64_t *done, struct err *e)
{
    struct writer *w = arg;
    struct pack_unit u = pack_plan_unit(&w->plan, i);
    XXH3_state_t *x = XXH3_createState();
    int rc = 0;

    if (!x)
        return err_set(e, -ENOMEM, "no memory for a checksum");
    if (w->found[i] && is_there(w, &u, w->found[i], x, r)) {
        w->xxh[i] = w->found[i];
        atomic_fetch_add(&w->kept, pack_pages(u.bytes));
    } else {
        rc = copy_unit(w, &u, &w->xxh[i], x, r, e);
    }
    XXH3_freeState(x);
    if (rc)
        return rc;
    atomic_store_explicit(&w->done[i], 1, memory_order_release);
    atomic_fetch_add(done, pack_pages(u.bytes));
    return 0;
}

/* ---- head and index ---- */

/* What is done so far goes into the index of the plan; all of it: the file is finished. */
static int save(struct writer *w, int finished, struct err *e)
{
    struct pack_head *h = &w->plan.head;

    for (uint64_t i = 0; i < w->plan.n_units; i++)
        if (atomic_load_explicit(&w->done[i], memory_order_acquire))
            *pack_plan_unit(&w->plan, i).xxh = w->xxh[i];
    memcpy(h->magic, finished ? PACK_MAGIC : PACK_MAGIC_PART, sizeof h->magic);
    h->index_xxh = finished ? pack_index_check(h, w->plan.index) : 0;
    h->check = pack_head_check(h);
    memcpy(w->image, h, sizeof *h);
    memcpy(w->image + PACK_PAGE, w->plan.index, pack_index_bytes(h));
    w->saved_ns = clock_ns();
    return pack_file_write(&w->file[EXPERTS], w->image, 0, image_bytes(w), e);
}

static int tick(void *arg, uint64_t done, int last, struct err *e)
{
    struct writer *w = arg;

    if (w->o->progress)
        w->o->progress(w->o->arg, done, w->plan.bytes, last);
    if (last || clock_ns() - w->saved_ns > SAVE_NS || done - w->saved_bytes > SAVE_BYTES) {
        int rc = save(w, 0, e);
        if (rc)
            return rc;
        w->saved_bytes = done;
    }
    return w->o->stop && w->o->stop() ? 1 : 0;
}

/* The checksums that an earlier run left in its unfinished file. 1: they are this pack's. 0: there are
 * none. Negative: another pack's. */
static int take_found(struct writer *w, struct err *e)
{
    const struct pack_head *h = &w->plan.head, *was = (void *)w->image;
    struct pack_room r;
    struct err ignored = {0};
    int rc = pack_room_make(&r, e);

    if (rc)
        return rc;
    rc = pack_file_read(&w->file[EXPERTS], w->image, 0, image_bytes(w), &r, &ignored);
    pack_room_free(&r);
    if (rc || was->check != pack_head_check(was) ||
        (memcmp(was->magic, PACK_MAGIC_PART, sizeof was->magic) &&
         memcmp(was->magic, PACK_MAGIC, sizeof was->magic)))
        return 0;
    if (memcmp(was->id, h->id, sizeof h->id) || was->version != h->version ||
        pack_index_bytes(was) != pack_index_bytes(h))
        return err_set(e, -EEXIST,
                       "%s: is an unfinished pack of another model, or for another number of nodes; remove it",
                       w->part[EXPERTS]);
    for (uint64_t i = 0; i < w->plan.n_units; i++) {
        uint64_t *xxh = pack_plan_unit(&w->plan, i).xxh;
        memcpy(xxh, w->image + PACK_PAGE + ((uint8_t *)xxh - (uint8_t *)w->plan.index), sizeof *xxh);
        w->found[i] = *xxh; /* and stays in the index: killed again, nothing is lost */
    }
    return 1;
}

/* ---- the folder ---- */

static int make_names(struct writer *w, struct err *e)
{
    for (int i = 0; i < N_FILES; i++)
        if (asprintf(&w->path[i], "%s/%s", w->o->dir, final_name[i]) < 0 ||
            asprintf(&w->part[i], "%s/%s.part", w->o->dir, final_name[i]) < 0)
            return err_set(e, -ENOMEM, "no memory for a file's name");
    return 0;
}

/* Is this the dense file of the pack that is to be made? */
static int is_ours(const struct writer *w)
{
    const struct front_kv *kv;
    struct err ignored = {0};
    struct front f;
    int is;

    if (front_open(&f, w->path[DENSE], &ignored))
        return 0;
    kv = front_find(&f, PACK_KEY_ID);
    is = kv && kv->kind == GGUF_ARRAY && kv->elem == GGUF_U64 && kv->n == 2 &&
         !memcmp(f.buf + kv->value_at, w->plan.head.id, sizeof w->plan.head.id);
    front_close(&f);
    return is;
}

/* 1: the very pack is there already. 0: go on. */
static int look_at_folder(struct writer *w, struct err *e)
{
    struct pack *p = NULL;
    int rc;

    if (!access(w->path[EXPERTS], F_OK)) {
        if (access(w->path[DENSE], F_OK))
            return err_set(e, -EEXIST, "%s: a pack without its %s; remove it and pack the model again", w->o->dir,
                           PACK_DENSE);
        rc = pack_open(w->path[EXPERTS], &p, e);
        if (rc)
            return rc;
        rc = memcmp(p->head.id, w->plan.head.id, sizeof p->head.id) || !is_ours(w);
        pack_close(p);
        return rc ? err_set(e, -EEXIST,
                            "%s: is a pack of another model, or for another number of nodes; remove it or "
                            "name another folder",
                            w->o->dir)
                  : 1;
    }
    if (access(w->path[DENSE], F_OK))
        return 0;
    /* a run that ended between the two names: */
    if (access(w->part[EXPERTS], F_OK) || !is_ours(w))
        return err_set(e, -EEXIST, "%s: is there already and will not be written over", w->path[DENSE]);
    if (rename(w->path[DENSE], w->part[DENSE]))
        return err_set(e, -errno, "%s: cannot rename: %s", w->path[DENSE], strerror(errno));
    return 0;
}

static uint64_t has_already(const char *path)
{
    struct stat st;

    return stat(path, &st) ? 0 : (uint64_t)st.st_blocks * 512;
}

static int check_space(const struct writer *w, struct err *e)
{
    uint64_t have = has_already(w->part[DENSE]) + has_already(w->part[EXPERTS]), left;
    struct statvfs fs;

    if (statvfs(w->o->dir, &fs))
        return err_set(e, -errno, "%s: cannot look at the disk: %s", w->o->dir, strerror(errno));
    left = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (w->plan.bytes > have && w->plan.bytes - have > left)
        return err_set(e, -ENOSPC, "%s: the pack takes %.2f GB more on this disk, but %.2f GB are free",
                       w->o->dir, (double)(w->plan.bytes - have) * 1e-9, (double)left * 1e-9);
    return 0;
}

/* All of a file's bytes are set aside before the first is written, where the file system can. */
static int set_aside(struct writer *w, int i, uint64_t bytes, struct err *e)
{
    int fd = w->file[i].fd;

    if (!fallocate(fd, 0, 0, (off_t)bytes))
        return 0;
    if (errno == ENOSPC || errno == EFBIG || errno == EDQUOT)
        return err_set(e, -errno, "%s: no room for %.2f GB: %s", w->part[i], (double)bytes * 1e-9,
                       strerror(errno));
    if (ftruncate(fd, (off_t)bytes))
        return err_set(e, -errno, "%s: cannot make it %llu bytes long: %s", w->part[i],
                       (unsigned long long)bytes, strerror(errno));
    return 0;
}

/* Nothing was written yet: what was made here goes again. */
static void undo(struct writer *w)
{
    for (int i = 0; i < N_FILES; i++)
        if (w->is_new[i])
            unlink(w->part[i]);
    if (w->new_dir)
        rmdir(w->o->dir);
}

static int open_parts(struct writer *w, struct err *e)
{
    int rc;

    for (int i = 0; i < N_FILES; i++)
        if ((rc = pack_file_make(&w->file[i], w->part[i], &w->is_new[i], e)))
            return rc;
    if (flock(w->file[EXPERTS].fd, LOCK_EX | LOCK_NB))
        return err_set(e, -EBUSY, "%s: another conclave pack is writing it", w->part[EXPERTS]);
    rc = take_found(w, e);
    memset(w->image, 0, image_bytes(w)); /* its padding */
    if (rc < 0)
        return rc;
    if ((rc = set_aside(w, DENSE, w->plan.head.dense_bytes, e)) ||
        (rc = set_aside(w, EXPERTS, w->plan.head.file_bytes, e)))
        return rc;
    return 0;
}

/* ---- the end ---- */

static int check_originals(const struct writer *w, struct err *e)
{
    for (uint32_t i = 0; i < w->plan.head.n_originals; i++) {
        const struct pack_original *o = &w->plan.original[i];
        struct stat st;

        if (fstat(w->source[i].fd, &st) || (uint64_t)st.st_size != o->bytes ||
            st.st_mtim.tv_sec * 1000000000ll + st.st_mtim.tv_nsec != o->mtime_ns)
            return err_set(e, -EBUSY, "%s: changed while it was packed; pack it again",
                           w->plan.text + o->path_at);
    }
    return 0;
}

static int write_front(const struct writer *w, struct err *e)
{
    uint64_t n = w->plan.head.dense_front;
    uint8_t *pages = aligned_alloc(PACK_PAGE, n);
    int rc;

    if (!pages)
        return err_set(e, -ENOMEM, "no memory for %llu bytes of metadata", (unsigned long long)n);
    memcpy(pages, w->plan.front, n);
    rc = pack_file_write(&w->file[DENSE], pages, 0, n, e);
    free(pages);
    return rc;
}

static int sync_folder(const char *dir, struct err *e)
{
    int rc = 0, fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0 || (fsync(fd) && errno != EINVAL)) /* EINVAL: some file systems have none */
        rc = err_set(e, -errno, "%s: cannot write to the disk: %s", dir, strerror(errno));
    if (fd >= 0)
        close(fd);
    return rc;
}

static int finish(struct writer *w, struct err *e)
{
    int rc;

    if ((rc = check_originals(w, e)) || (rc = write_front(w, e)) || (rc = save(w, 1, e)))
        return rc;
    for (int i = 0; i < N_FILES; i++)
        if (fsync(w->file[i].fd))
            return err_set(e, -errno, "%s: cannot write to the disk: %s", w->part[i], strerror(errno));
    for (int i = 0; i < N_FILES; i++) /* the experts' name last: it makes the folder a pack */
        if (rename(w->part[i], w->path[i]))
            return err_set(e, -errno, "%s: cannot give it this name: %s", w->path[i], strerror(errno));
    return sync_folder(w->o->dir, e);
}

/* ---- the whole ---- */

static int make_tables(struct writer *w, struct err *e)
{
    uint64_t n = w->plan.n_units;

    w->found = calloc(n, sizeof *w->found);
    w->xxh = calloc(n, sizeof *w->xxh);
    w->done = calloc(n, sizeof *w->done);
    w->source = calloc(w->plan.head.n_originals, sizeof *w->source);
    w->image = aligned_alloc(PACK_PAGE, image_bytes(w));
    if (!w->found || !w->xxh || !w->done || !w->source || !w->image)
        return err_set(e, -ENOMEM, "no memory for the tables of %llu blocks", (unsigned long long)n);
    memset(w->image, 0, image_bytes(w));
    for (uint32_t i = 0; i < w->plan.head.n_originals; i++)
        w->source[i].fd = -1;
    for (uint32_t i = 0; i < w->plan.head.n_originals; i++) {
        int rc = pack_file_read_only(&w->source[i], w->plan.text + w->plan.original[i].path_at, e);
        if (rc)
            return rc;
    }
    return 0;
}

static int write_pack(struct writer *w, struct err *e)
{
    struct pack_work work = {.n = w->plan.n_units, .piece = piece, .tick = tick, .arg = w};
    int rc;

    if ((rc = make_names(w, e)) || (rc = look_at_folder(w, e)))
        return rc == 1 ? 2 : rc;
    if ((rc = make_tables(w, e)) || (rc = check_space(w, e)) || (rc = open_parts(w, e)) ||
        (rc = save(w, 0, e))) {
        undo(w);
        return rc;
    }
    rc = pack_work(&work, e);
    return rc ? rc : finish(w, e);
}

static void drop(struct writer *w)
{
    for (int i = 0; i < N_FILES; i++) {
        pack_file_close(&w->file[i]);
        free(w->path[i]);
        free(w->part[i]);
    }
    for (uint32_t i = 0; w->source && i < w->plan.head.n_originals; i++)
        pack_file_close(&w->source[i]);
    free(w->source);
    free(w->found);
    free(w->xxh);
    free(w->done);
    free(w->image);
    pack_plan_free(&w->plan);
}

int pack_write(const struct pack_options *o, struct pack_report *r, struct err *e)
{
    struct writer w = {.o = o, .file = {{.fd = -1}, {.fd = -1}}};
    int rc;

    *r = (struct pack_report){.n_nodes = o->n_nodes};
    if (gguf_pack(o->m->g))
        return err_set(e, -EINVAL, "%s: is a pack already", o->m->path);
    rc = pack_plan_make(o->m, o->n_nodes, &w.plan, e);
    if (!rc) {
        w.new_dir = !mkdir(o->dir, 0777);
        if (!w.new_dir && errno != EEXIST)
            rc = err_set(e, -errno, "%s: cannot make the folder: %s", o->dir, strerror(errno));
    }
    if (!rc)
        rc = write_pack(&w, e);
    r->bytes = w.plan.bytes;
    r->kept = atomic_load(&w.kept);
    r->n_blocks = w.plan.n_units - w.plan.n_dense;
    r->was_there = rc == 2;
    drop(&w);
    return rc == 2 ? 0 : rc;
}
