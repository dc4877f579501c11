/* Reading with one io_uring: the follower (kick) and the reaper submit under the lock, the reaper
 * alone takes completions. Files and segments are registered where the kernel allows, so that a
 * read neither looks up a descriptor nor pins pages. */
#define _GNU_SOURCE
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "pager/io.h"

#define BUFFER_BYTES (1ull << 30) /* the kernel's limit for one registered buffer */
#define BUFFERS_MAX 16384u        /* ... and for their number */
#define SUBMIT_TRIES 1000u        /* naps while the kernel has no memory for requests: a second */

struct uring {
    struct io_uring ring;
    pthread_t reaper;
    int files, buffers; /* registered */
    uint32_t first_buffer[1 + MAX_NODES];
};

/* The ring is of no use any more: no read could be waited for either. Has not been seen. */
static _Noreturn void give_up(struct pager *p, const char *what, int code)
{
    ctl_sendf(p->child->ctl, CTL_ERROR, 0, "io_uring: cannot %s: %s", what, strerror(-code));
    _exit(1);
}

/* Everything that was prepared goes to the kernel. With the lock held. */
static void submit(struct pager *p)
{
    struct uring *u = p->io;
    unsigned tries = 0;
    int rc;

    while (io_uring_sq_ready(&u->ring)) {
        rc = io_uring_submit(&u->ring);
        if (rc > 0)
            continue;
        if ((rc && rc != -EAGAIN && rc != -EBUSY && rc != -EINTR) || tries++ == SUBMIT_TRIES)
            give_up(p, "submit", rc ? rc : -EAGAIN);
        usleep(RETRY_NAP_US);
    }
}

static void prepare(struct pager *p, struct job_read *r)
{
    struct uring *u = p->io;
    /* never NULL: at most TUNE_DEPTH reads are out, and the queue has room for more than them */
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    int fd = u->files ? (int)r->shard : p->file[r->shard].fd;
    uint8_t *at = follow_place(p, r);
    uint64_t part = r->dst / BUFFER_BYTES;

    if (u->buffers && !r->bounce && (r->dst + r->bytes - 1) / BUFFER_BYTES == part) /* inside one buffer */
        io_uring_prep_read_fixed(sqe, fd, at, (unsigned)r->bytes, r->off,
                                 (int)(u->first_buffer[r->seg] + part));
    else
        io_uring_prep_read(sqe, fd, at, (unsigned)r->bytes, r->off);
    if (u->files)
        io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
    io_uring_sqe_set_data(sqe, r);
}

static void fill(struct pager *p)
{
    struct job_read *r;

    while ((r = follow_next(p)))
        prepare(p, r);
    submit(p);
}

static void kick(struct pager *p)
{
    pthread_mutex_lock(&p->lock);
    fill(p);
    pthread_mutex_unlock(&p->lock);
}

/* A completion, with the lock held. */
static void complete(struct pager *p, struct io_uring_cqe *cqe)
{
    struct job_read *r = io_uring_cqe_get_data(cqe);
    int again;

    if (!r)
        return; /* the no-op that wakes the reaper at the end */
    again = follow_result(p, r, cqe->res);
    if (again == 2)
        usleep(RETRY_NAP_US); /* rare, and then the kernel has no time for other reads either */
    if (again)
        prepare(p, r);
}

static void *reap(void *pager)
{
    struct pager *p = pager;
    struct uring *u = p->io;
    struct io_uring_cqe *cqe[TUNE_DEPTH + 1];
    unsigned n;
    int rc, end = 0;

    while (!end) {
        rc = io_uring_wait_cqe(&u->ring, cqe);
        if (rc == -EINTR || rc == -EAGAIN)
            continue;
        if (rc < 0)
            give_up(p, "wait", rc);
        pthread_mutex_lock(&p->lock);
        n = io_uring_peek_batch_cqe(&u->ring, cqe, TUNE_DEPTH + 1);
        for (unsigned i = 0; i < n; i++)
            complete(p, cqe[i]);
        io_uring_cq_advance(&u->ring, n);
        fill(p);
        end = p->stopping && !p->jobs.out;
        pthread_mutex_unlock(&p->lock);
    }
    return NULL;
}

static void register_files(struct pager *p, struct uring *u)
{
    int *fd = malloc((p->n_shards + !p->n_shards) * sizeof *fd);

    if (!fd)
        return;
    for (uint32_t i = 0; i < p->n_shards; i++)
        fd[i] = p->file[i].fd;
    u->files = p->n_shards && !io_uring_register_files(&u->ring, fd, p->n_shards);
    free(fd);
}

/* All or nothing; refused where RLIMIT_MEMLOCK is small: one line, and reads without it. */
static void register_buffers(struct pager *p, struct uring *u)
{
    struct iovec *v = calloc(BUFFERS_MAX, sizeof *v);
    struct rlimit lim = {0};
    unsigned n = 0;
    int rc = -ENOMEM;

    for (uint32_t s = 0; s < p->n_segs && v; s++) {
        u->first_buffer[s] = n;
        for (uint64_t at = 0; at < p->seg_bytes[s] && n < BUFFERS_MAX; at += BUFFER_BYTES, n++) {
            uint64_t left = p->seg_bytes[s] - at;
            v[n].iov_base = p->seg_base[s] + at;
            v[n].iov_len = left < BUFFER_BYTES ? left : BUFFER_BYTES;
        }
    }
    if (n && n < BUFFERS_MAX)
        rc = io_uring_register_buffers(&u->ring, v, n);
    u->buffers = !rc;
    if (rc && n) {
        getrlimit(RLIMIT_MEMLOCK, &lim);
        ctl_sendf(
            p->child->ctl, CTL_LOG, 2,
            "slabs are not registered with io_uring (%s; limit of locked memory %llu KiB, "
            "see ulimit -l): a read costs a little more processor time",
            strerror(-rc), (unsigned long long)lim.rlim_cur / 1024);
    }
    free(v);
}

/* A ring that can read: Linux 5.6. */
static int init_ring(struct io_uring *ring)
{
    struct io_uring_probe *probe;
    int rc = io_uring_queue_init(2 * TUNE_DEPTH, ring, 0);

    if (rc < 0)
        return rc;
    probe = io_uring_get_probe_ring(ring);
    if (!probe || !io_uring_opcode_supported(probe, IORING_OP_READ)) {
        io_uring_queue_exit(ring);
        rc = -ENOSYS;
    }
    free(probe);
    return rc;
}

static int open_ring(struct pager *p, struct err *e)
{
    struct uring *u = calloc(1, sizeof *u);
    int rc;

    if (!u)
        return err_set(e, -ENOMEM, "no memory for io_uring");
    rc = init_ring(&u->ring);
    if (rc < 0) {
        free(u);
        return err_set(e, rc, "io_uring is not available (%s)", strerror(-rc));
    }
    register_files(p, u);
    register_buffers(p, u);
    p->io = u;
    rc = pthread_create(&u->reaper, NULL, reap, p);
    if (rc) {
        io_uring_queue_exit(&u->ring);
        free(u);
        p->io = NULL;
        return err_set(e, -rc, "cannot start a thread: %s", strerror(rc));
    }
    return 0;
}

static void close_ring(struct pager *p)
{
    struct uring *u = p->io;
    struct io_uring_sqe *sqe;

    pthread_mutex_lock(&p->lock);
    sqe = io_uring_get_sqe(&u->ring);
    io_uring_prep_nop(sqe);
    io_uring_sqe_set_data(sqe, NULL); /* wakes the reaper, which may have nothing out */
    submit(p);
    pthread_mutex_unlock(&p->lock);
    pthread_join(u->reaper, NULL);
    io_uring_queue_exit(&u->ring); /* waits for whatever is still out */
    free(u);
    p->io = NULL;
}

const struct io_form io_uring_form = {.name = "uring",
                                      .depth = TUNE_DEPTH,
                                      .tunes = 1,
                                      .open = open_ring,
                                      .kick = kick,
                                      .close = close_ring};
