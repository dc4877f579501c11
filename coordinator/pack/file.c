#define _GNU_SOURCE
#include "coordinator/pack/file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define llu(x) ((unsigned long long)(x))

int pack_room_make(struct pack_room *r, struct err *e)
{
    r->out = aligned_alloc(PACK_PAGE, PACK_OUT);
    r->in = aligned_alloc(PACK_PAGE, PACK_IN);
    if (r->out && r->in)
        return 0;
    pack_room_free(r);
    return err_set(e, -ENOMEM, "no memory for %d bytes of a pack", PACK_OUT + PACK_IN);
}

void pack_room_free(struct pack_room *r)
{
    free(r->out);
    free(r->in);
    *r = (struct pack_room){0};
}

static int open_as(struct pack_file *f, const char *path, int flags)
{
    f->path = path;
    f->direct = 1;
    f->fd = open(path, flags | O_DIRECT | O_CLOEXEC, 0666);
    if (f->fd >= 0 || errno != EINVAL) /* EINVAL: no direct reading there (tmpfs, some network ones) */
        return f->fd;
    f->direct = 0;
    f->fd = open(path, flags | O_CLOEXEC, 0666);
    return f->fd;
}

int pack_file_read_only(struct pack_file *f, const char *path, struct err *e)
{
    if (open_as(f, path, O_RDONLY) < 0)
        return err_set(e, -errno, "%s: cannot open: %s", path, strerror(errno));
    return 0;
}

int pack_file_make(struct pack_file *f, const char *path, int *is_new, struct err *e)
{
    *is_new = 0;
    if (open_as(f, path, O_RDWR) < 0 && errno == ENOENT)
        *is_new = open_as(f, path, O_RDWR | O_CREAT | O_EXCL) >= 0;
    if (f->fd < 0)
        return err_set(e, -errno, "%s: cannot write: %s", path, strerror(errno));
    return 0;
}

void pack_file_close(struct pack_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
}

/* At least `need` of n bytes; whole pages if the file is direct. */
static int read_pages(const struct pack_file *f, uint8_t *to, uint64_t off, uint64_t n, uint64_t need,
                      struct err *e)
{
    uint64_t got = 0;

    while (got < need) {
        ssize_t k = pread(f->fd, to + got, n - got, (off_t)(off + got));
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return err_set(e, k ? -errno : -ENODATA, "%s: byte %llu: cannot read: %s", f->path,
                           llu(off + got), k ? strerror(errno) : "the file ends here");
        got += (uint64_t)k;
        if (got < need && f->direct) /* goes on from a whole page */
            got &= ~(uint64_t)(PACK_PAGE - 1);
        if (!got && k < PACK_PAGE && f->direct)
            return err_set(e, -ENODATA, "%s: byte %llu: cannot read: the file ends here", f->path,
                           llu(off + (uint64_t)k));
    }
    if (!f->direct)
        posix_fadvise(f->fd, (off_t)off, (off_t)n, POSIX_FADV_DONTNEED);
    return 0;
}

int pack_file_read(const struct pack_file *f, void *to, uint64_t off, uint64_t n, struct pack_room *r,
                   struct err *e)
{
    uint8_t *out = to;

    while (n) {
        uint64_t skip = off % PACK_PAGE, some = n < PACK_IN - skip ? n : PACK_IN - skip;
        int rc = read_pages(f, r->in, off - skip, pack_pages(skip + some), skip + some, e);
        if (rc)
            return rc;
        memcpy(out, r->in + skip, some);
        out += some;
        off += some;
        n -= some;
    }
    return 0;
}

int pack_file_write(const struct pack_file *f, const void *from, uint64_t off, uint64_t n, struct err *e)
{
    const uint8_t *p = from;
    uint64_t done = 0;

    while (done < n) {
        ssize_t k = pwrite(f->fd, p + done, n - done, (off_t)(off + done));
        if (k < 0 && errno == EINTR)
            continue;
        if (k > 0 && f->direct && (uint64_t)k < n - done)
            k &= ~(ssize_t)(PACK_PAGE - 1); /* short: the rest tells why */
        if (k < 0 || (!k && !f->direct))
            return err_set(e, k ? -errno : -EIO, "%s: byte %llu: cannot write: %s", f->path,
                           llu(off + done), strerror(k ? errno : EIO));
        if (!k) { /* less than a page was written by a direct write: the disk is full */
            return err_set(e, -ENOSPC, "%s: byte %llu: cannot write: %s", f->path, llu(off + done),
                           strerror(ENOSPC));
        }
        done += (uint64_t)k;
    }
    if (f->direct)
        return 0;
    if (sync_file_range(f->fd, (off_t)off, (off_t)n,
                        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER) &&
        errno != ENOSYS && errno != ESPIPE)
        return err_set(e, -errno, "%s: byte %llu: cannot write: %s", f->path, llu(off), strerror(errno));
    posix_fadvise(f->fd, (off_t)off, (off_t)n, POSIX_FADV_DONTNEED);
    return 0;
}
