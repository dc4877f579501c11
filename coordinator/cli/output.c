/* Writing results. write(2) alone: what was written is out, whatever happens next. */
#define _GNU_SOURCE
#include "coordinator/cli/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "coordinator/model/keep_models.h"
#include "coordinator/model/tokenizer.h"

#define WRITE_BACK (8u << 20) /* bytes of a result between two steps of writing back */

int output_bytes(int fd, const char *name, const void *data, size_t n, struct err *e)
{
    const char *at = data;

    while (n) {
        ssize_t k = write(fd, at, n);

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && errno == EPIPE)
            return err_set(e, -EPIPE, "%s was closed by its reader: stopped", name);
        if (k < 0)
            return err_set(e, -errno, "%s: cannot write: %s", name, strerror(errno));
        at += k;
        n -= (size_t)k;
    }
    return 0;
}

int output_open(struct output *o, const char *path, struct err *e)
{
    *o = (struct output){.path = NULL, .fd = -1};
    if (keep_models(path, e))
        return -EEXIST;
    o->path = path;
    o->fd = open(path, O_WRONLY | O_CLOEXEC);
    if (o->fd < 0 && errno == ENOENT) {
        o->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        o->ours = o->fd >= 0;
    }
    if (o->fd < 0) {
        o->path = NULL;
        return err_set(e, -errno, "%s: cannot write: %s", path, strerror(errno));
    }
    return 0;
}

/* Results can be larger than the memory that a limit leaves: what was written some steps ago goes to
 * the disk and out of the page cache, which counts against the limit. Pipes and devices refuse. */
static void write_back(const struct output *o, uint64_t from)
{
    off_t a = (off_t)(from / WRITE_BACK * WRITE_BACK), b = (off_t)(o->bytes / WRITE_BACK * WRITE_BACK);

    if (b <= a)
        return;
    sync_file_range(o->fd, a, b - a, SYNC_FILE_RANGE_WRITE);
    if (a) { /* begun a step ago */
        sync_file_range(o->fd, 0, a, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
        posix_fadvise(o->fd, 0, a, POSIX_FADV_DONTNEED);
    }
}

int output_write(struct output *o, const void *data, size_t n, struct err *e)
{
    uint64_t from = o->bytes;
    int rc;

    if (!o->written && ftruncate(o->fd, 0) && errno != EINVAL) /* EINVAL: a pipe or a device */
        return err_set(e, -errno, "%s: cannot write: %s", o->path, strerror(errno));
    o->written = 1;
    rc = output_bytes(o->fd, o->path, data, n, e);
    if (rc)
        return rc;
    o->bytes += n;
    write_back(o, from);
    return 0;
}

int output_close(struct output *o, struct err *e)
{
    int rc = 0;

    if (!o->path)
        return 0;
    if (o->ours && !o->written)
        unlink(o->path);
    if (close(o->fd))
        rc = err_set(e, -errno, "%s: cannot write: %s", o->path, strerror(errno));
    *o = (struct output){.fd = -1};
    return rc;
}

/* 1: both are one file. Devices and pipes take what comes. */
static int same_file(const char *a, const char *b)
{
    struct stat x, y;

    if (stat(a, &x) || stat(b, &y))
        return !strcmp(a, b);
    return S_ISREG(x.st_mode) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int results_differ(const struct result *r, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; r[i].path && k < i; k++)
            if (r[k].path && same_file(r[i].path, r[k].path))
                return err_set(e, -EINVAL, "%s: %s and %s would write the same file", r[i].path, r[k].flag, r[i].flag);
    return 0;
}

int output_folder(const char *path, struct err *e)
{
    struct stat st;

    if (mkdir(path, 0777) && errno != EEXIST)
        return err_set(e, -errno, "%s: cannot make the folder: %s", path, strerror(errno));
    if (!stat(path, &st) && !S_ISDIR(st.st_mode))
        return err_set(e, -ENOTDIR, "%s: is no folder", path);
    if (access(path, W_OK | X_OK))
        return err_set(e, -errno, "%s: cannot write: %s", path, strerror(errno));
    return 0;
}

int input_text(const char *path, char **text, size_t *n, struct err *e)
{
    int from_stdin = !path || !strcmp(path, "-"), rc = 0;
    int fd = from_stdin ? 0 : open(path, O_RDONLY | O_CLOEXEC);
    size_t cap = 0;
    char *buf = NULL, *more;

    if (from_stdin)
        path = "standard input";
    *n = 0;
    if (fd < 0)
        return err_set(e, -errno, "%s: cannot open: %s", path, strerror(errno));
    for (;;) {
        ssize_t got;

        if (*n == cap) {
            cap = cap ? 2 * cap : 1 << 16;
            if (cap > 2 * (size_t)TOKENIZE_TEXT_MAX || !(more = realloc(buf, cap))) {
                rc = err_set(e, -ENOMEM, "%s: too long, at most %d bytes work", path,
                             TOKENIZE_TEXT_MAX);
                goto done;
            }
            buf = more;
        }
        got = read(fd, buf + *n, cap - *n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            rc = err_set(e, -errno, "%s: cannot read: %s", path, strerror(errno));
            goto done;
        }
        if (!got)
            break;
        *n += (size_t)got;
    }
    *text = buf;
    buf = NULL; /* handed over */
done:
    if (!from_stdin)
        close(fd);
    free(buf);
    return rc;
}
