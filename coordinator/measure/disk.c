/* One loop that keeps `depth` reads out, in two forms, as the pager has them. It does not use the
 * pager: that would measure orders, bells and segments as well. */
#define _GNU_SOURCE
#include "coordinator/measure/disk.h"

#include <inttypes.h>
#include <liburing.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shm/bell.h"
#include "shm/size.h"

struct probe {
    int fd;
    uint64_t n_blocks, read_bytes;
    unsigned depth;
    uint64_t start, until; /* now_ns */
    uint8_t *mem;          /* depth * read_bytes */
    pthread_mutex_t lock;  /* the threads' form: all below */
    uint64_t at, step;     /* the next block; prime to n_blocks, so that none comes twice early */
    uint64_t n_reads, sum_ns, end;
    int error; /* errno */
    uint64_t error_at;
};

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

static uint64_t next_offset(struct probe *p)
{
    p->at = (p->at + p->step) % p->n_blocks;
    return p->at * p->read_bytes;
}

static void ended(struct probe *p, uint64_t off, int64_t got, uint64_t began)
{
    uint64_t now = now_ns();

    p->n_reads++;
    p->sum_ns += now - began;
    p->end = now;
    if (got == (int64_t)p->read_bytes || p->error)
        return;
    p->error = got < 0 ? (int)-got : EIO; /* a block inside the file that comes short */
    p->error_at = off;
}

static int more(const struct probe *p)
{
    return !p->error && now_ns() < p->until;
}

/* ---- by io_uring ---- */

struct uring_read {
    uint64_t off, began;
};

static void give(struct probe *p, struct io_uring *ring, struct uring_read *r, unsigned i)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

    r[i] = (struct uring_read){next_offset(p), now_ns()};
    io_uring_prep_read(sqe, p->fd, p->mem + i * p->read_bytes, (unsigned)p->read_bytes, r[i].off);
    io_uring_sqe_set_data64(sqe, i);
}

/* 0, or a negative errno if there is no io_uring. */
static int by_uring(struct probe *p)
{
    struct uring_read r[DISK_DEPTH_MAX];
    struct io_uring ring;
    struct io_uring_cqe *cqe;
    unsigned out = 0;
    int rc = io_uring_queue_init(p->depth, &ring, 0);

    if (rc < 0)
        return rc;
    p->start = now_ns();
    for (; out < p->depth; out++)
        give(p, &ring, r, out);
    while (out) {
        rc = io_uring_submit_and_wait(&ring, 1);
        if (rc < 0 && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY) {
            ended(p, 0, rc, now_ns()); /* closing the ring waits for what is out */
            break;
        }
        while (!io_uring_peek_cqe(&ring, &cqe)) {
            unsigned i = (unsigned)io_uring_cqe_get_data64(cqe);
            ended(p, r[i].off, cqe->res, r[i].began);
            io_uring_cqe_seen(&ring, cqe);
            if (more(p))
                give(p, &ring, r, i);
            else
                out--;
        }
    }
    io_uring_queue_exit(&ring);
    return 0;
}

/* ---- by threads ---- */

struct probe_thread {
    struct probe *p;
    uint8_t *mem;
    pthread_t id;
};

static void *read_on(void *arg)
{
    struct probe_thread *t = arg;
    struct probe *p = t->p;

    pthread_mutex_lock(&p->lock);
    while (more(p)) {
        uint64_t off = next_offset(p), began = now_ns();
        ssize_t got;

        pthread_mutex_unlock(&p->lock);
        got = pread(p->fd, t->mem, p->read_bytes, (off_t)off);
        got = got < 0 ? -errno : got;
        pthread_mutex_lock(&p->lock);
        ended(p, off, got, began);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static int by_threads(struct probe *p)
{
    struct probe_thread t[DISK_DEPTH_MAX];
    unsigned n = 0;
    int rc = 0;

    p->start = now_ns();
    for (; n < p->depth && !rc; n++) {
        t[n] = (struct probe_thread){p, p->mem + n * p->read_bytes, 0};
        rc = pthread_create(&t[n].id, NULL, read_on, &t[n]);
        n -= !!rc;
    }
    for (unsigned i = 0; i < n; i++)
        pthread_join(t[i].id, NULL);
    return -rc;
}

int disk_io(enum disk_io *out, struct err *e)
{
    const char *wanted = getenv("CONCLAVE_IO");

    *out = !wanted || !*wanted ? DISK_ANY : !strcmp(wanted, "threads") ? DISK_THREADS : DISK_URING;
    if (*out == DISK_URING && strcmp(wanted, "uring"))
        return err_set(e, -EINVAL, "CONCLAVE_IO is '%s' (uring or threads)", wanted);
    return 0;
}

int disk_rate(int fd, const char *name, uint64_t file_bytes, uint64_t read_bytes, unsigned depth,
              unsigned ms, struct disk_rate *out, struct err *e)
{
    struct probe p = {.fd = fd, .read_bytes = read_bytes, .depth = depth};
    enum disk_io how;
    int rc;

    *out = (struct disk_rate){0};
    if ((rc = disk_io(&how, e)))
        return rc;
    if (!read_bytes || read_bytes % 4096 || !depth || depth > DISK_DEPTH_MAX ||
        read_bytes > (1u << 30) || file_bytes < read_bytes)
        return err_set(e, -EINVAL, "%s: %u reads of %" PRIu64 " bytes cannot be measured in %" PRIu64,
                       name, depth, read_bytes, file_bytes);
    p.n_blocks = file_bytes / read_bytes;
    p.step = p.n_blocks * 618 / 1000 + 1; /* far apart from read to read */
    while (gcd(p.step, p.n_blocks) != 1)
        p.step++;
    p.at = now_ns() % p.n_blocks; /* where it begins is of no account */
    p.mem = mmap(NULL, depth * read_bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (p.mem == MAP_FAILED)
        return err_set(e, -ENOMEM, "no memory for %u reads of %" PRIu64 " bytes", depth, read_bytes);
    p.until = now_ns() + (uint64_t)ms * 1000000;
    pthread_mutex_init(&p.lock, NULL);
    rc = how == DISK_THREADS ? -ENOSYS : by_uring(&p);
    out->uring = rc == 0;
    if (!out->uring && how != DISK_URING)
        rc = by_threads(&p);
    pthread_mutex_destroy(&p.lock);
    munmap(p.mem, depth * read_bytes);
    if (rc)
        return err_set(e, rc, "%s: %s", how == DISK_URING ? "io_uring" : "cannot start a thread", strerror(-rc));
    if (p.error)
        return err_set(e, -p.error, "%s: byte %" PRIu64 ": cannot read: %s", name, p.error_at,
                       strerror(p.error));
    out->bytes = p.n_reads * read_bytes;
    out->bytes_per_s = (double)out->bytes / ((double)(p.end - p.start) * 1e-9);
    out->read_us = (double)p.sum_ns / (double)p.n_reads * 1e-3;
    return 0;
}
