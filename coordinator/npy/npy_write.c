/* Writing .npy while its length is not known yet. Rows go out in groups, and the header, which has
 * a fixed size, is written again after each group: what lies in the file is always a whole array.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "coordinator/npy/npy.h"
#include "shm/size.h"

enum { GROUP_BYTES = 1 << 16 };

struct npy_writer {
    int fd, started; /* started: the file has been emptied */
    int ours;        /* there was no such file before */
    uint32_t width, n_dims, shape[NPY_WRITE_DIMS];
    size_t row_values, row_bytes, group_rows;
    uint64_t written; /* rows in the file */
    size_t waiting;   /* rows in buf */
    unsigned char *buf;
    char path[];
};

static int put(const struct npy_writer *w, const void *data, size_t n, uint64_t at, struct err *e)
{
    const char *from = data;

    while (n) {
        ssize_t k = pwrite(w->fd, from, n, (off_t)at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return err_set(e, -errno, "%s: cannot write: %s", w->path, strerror(errno));
        from += k;
        at += (uint64_t)k;
        n -= (size_t)k;
    }
    return 0;
}

static int put_header(const struct npy_writer *w, uint64_t rows, struct err *e)
{
    char h[NPY_WRITE_HEADER + 1];
    int n = snprintf(h + 10, sizeof h - 10,
                     "{'descr': '%cu%u', 'fortran_order': False, 'shape': (%llu,",
                     w->width == 1 ? '|' : '<', w->width, (unsigned long long)rows);

    for (uint32_t i = 0; i < w->n_dims; i++)
        n += snprintf(h + 10 + n, sizeof h - 10 - (size_t)n, "%s%u", i ? ", " : " ", w->shape[i]);
    n += snprintf(h + 10 + n, sizeof h - 10 - (size_t)n, "), }");
    memset(h + 10 + n, ' ',
           NPY_WRITE_HEADER - 10 - (size_t)n); /* at most 112 bytes of 118 are used */
    memcpy(h, "\x93NUMPY\x01\x00", 8);
    h[8] = NPY_WRITE_HEADER - 10;
    h[9] = 0;
    h[NPY_WRITE_HEADER - 1] = '\n';
    return put(w, h, NPY_WRITE_HEADER, 0, e);
}

static int flush(struct npy_writer *w, struct err *e)
{
    int rc;

    if (!w->started && ftruncate(w->fd, 0))
        return err_set(e, -errno, "%s: cannot write: %s", w->path, strerror(errno));
    w->started = 1;
    rc = put(w, w->buf, w->waiting * w->row_bytes, NPY_WRITE_HEADER + w->written * w->row_bytes, e);
    if (!rc)
        rc = put_header(w, w->written + w->waiting, e);
    if (rc) { /* a full disk: back to the array that was there */
        if (!ftruncate(w->fd, (off_t)(NPY_WRITE_HEADER + w->written * w->row_bytes)))
            put_header(w, w->written, NULL);
        return rc;
    }
    w->written += w->waiting;
    w->waiting = 0;
    return 0;
}

int npy_create(const char *path, uint32_t width, uint32_t n_dims, const uint32_t *shape,
               struct npy_writer **out, struct err *e)
{
    struct npy_writer *w = calloc(1, sizeof *w + strlen(path) + 1);
    struct stat st;
    int rc;

    if (!w)
        return err_set(e, -ENOMEM, "no memory to write %s", path);
    strcpy(w->path, path);
    w->fd = -1;
    w->width = width;
    w->n_dims = n_dims;
    w->row_values = 1;
    for (uint32_t i = 0; i < n_dims && i < NPY_WRITE_DIMS; i++) {
        w->shape[i] = shape[i];
        if (!shape[i] || size_mul(w->row_values, shape[i], &w->row_values))
            w->row_values = 0;
    }
    if ((width != 1 && width != 2 && width != 4) || n_dims > NPY_WRITE_DIMS || !w->row_values ||
        size_mul(w->row_values, width, &w->row_bytes) || w->row_bytes > 1 << 30) {
        rc = err_set(e, -EINVAL, "%s: rows of this shape cannot be written", path);
        goto failed;
    }
    w->group_rows = w->row_bytes < GROUP_BYTES ? GROUP_BYTES / w->row_bytes : 1;
    w->buf = malloc(w->group_rows * w->row_bytes);
    if (!w->buf) {
        rc = err_set(e, -ENOMEM, "no memory to write %s", path);
        goto failed;
    }
    w->fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not hang us */
    if (w->fd < 0 && errno == ENOENT) {
        w->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        w->ours = w->fd >= 0;
    }
    if (w->fd < 0 || fstat(w->fd, &st)) {
        rc = err_set(e, -errno, "%s: cannot write: %s", path, strerror(errno));
        goto failed;
    }
    if (!S_ISREG(st.st_mode)) { /* the header is written again and again */
        rc = err_set(e, -ESPIPE, "%s: cannot write: no regular file", path);
        goto failed;
    }
    *out = w;
    return 0;
failed:
    if (w->fd >= 0)
        close(w->fd);
    free(w->buf);
    free(w);
    return rc;
}

int npy_write(struct npy_writer *w, const uint32_t *row, struct err *e)
{
    uint64_t limit = 1ull << 8 * w->width;
    unsigned char *to;

    if (w->waiting == w->group_rows) {
        int rc = flush(w, e);
        if (rc)
            return rc;
    }
    to = w->buf + w->waiting * w->row_bytes;
    for (size_t i = 0; i < w->row_values; i++) {
        if (row[i] >= limit)
            return err_set(e, -ERANGE, "%s: %u does not fit in %u bytes", w->path, row[i],
                           w->width);
        for (uint32_t b = 0; b < w->width; b++)
            *to++ = (unsigned char)(row[i] >> 8 * b);
    }
    w->waiting++;
    return 0;
}

uint64_t npy_rows(const struct npy_writer *w)
{
    return w->written + w->waiting;
}

int npy_close(struct npy_writer *w, struct err *e)
{
    int rc;

    if (!w)
        return 0;
    rc = w->waiting || !w->started ? flush(w, e) : 0;
    if (close(w->fd) && !rc)
        rc = err_set(e, -errno, "%s: cannot write: %s", w->path, strerror(errno));
    free(w->buf);
    free(w);
    return rc;
}

void npy_drop(struct npy_writer *w)
{
    if (!w)
        return;
    if (w->ours && !w->started)
        unlink(w->path);
    close(w->fd);
    free(w->buf);
    free(w);
}
