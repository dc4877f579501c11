/* A disk that fails, for whole runs: loaded before the C library (LD_PRELOAD) it changes what the pager
 * gets back from its reads, in both forms, and what the kernel offers. Built by the tests alone.
 *
 *   FAULT_READ=KIND:SKIP:COUNT   KIND eio, eagain or short; after SKIP good results of reads COUNT bad
 *                                ones (0: all). In the pager only
 *   FAULT_DIRECT=1               O_DIRECT is refused
 *   FAULT_URING=1                there is no io_uring
 *   FAULT_COUNT=FILE             at the end: reads seen, of these bad */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

static char kind[16];
static unsigned long skip, count;
static int in_pager;
static _Atomic unsigned long seen, bad;

__attribute__((constructor)) static void begin(void)
{
    const char *s = getenv("FAULT_READ");

    in_pager = !strcmp(program_invocation_short_name, "conclave-pager");
    if (s && sscanf(s, "%15[a-z]:%lu:%lu", kind, &skip, &count) != 3)
        abort();
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("FAULT_COUNT");
    FILE *f = in_pager && path ? fopen(path, "w") : NULL;

    if (!f)
        return;
    fprintf(f, "%lu %lu\n", seen, bad);
    fclose(f);
}

/* What a read that gave `got` (negative: an errno) gives instead. */
static long changed(long got)
{
    unsigned long n = atomic_fetch_add(&seen, 1);

    if (!in_pager || !kind[0] || n < skip || (count && n >= skip + count))
        return got;
    atomic_fetch_add(&bad, 1);
    if (!strcmp(kind, "eio"))
        return -EIO;
    if (!strcmp(kind, "eagain"))
        return -EAGAIN;
    return got > 8192 ? got / 2 + 1 : got; /* not whole blocks either, but more than one: it goes on */
}

ssize_t pread(int fd, void *buf, size_t n, off_t off)
{
    static ssize_t (*real)(int, void *, size_t, off_t);
    long got;

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pread");
    got = real(fd, buf, n, off);
    if (!in_pager)
        return got;
    got = changed(got < 0 ? -errno : got);
    if (got >= 0)
        return got;
    errno = (int)-got;
    return -1;
}

unsigned io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **cqes, unsigned n)
{
    static unsigned (*real)(struct io_uring *, struct io_uring_cqe **, unsigned);

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "io_uring_peek_batch_cqe");
    n = real(ring, cqes, n);
    for (unsigned i = 0; i < n; i++)
        if (cqes[i]->user_data) /* of a read */
            cqes[i]->res = (int)changed(cqes[i]->res);
    return n;
}

int io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags)
{
    static int (*real)(unsigned, struct io_uring *, unsigned);

    if (getenv("FAULT_URING"))
        return -EPERM;
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "io_uring_queue_init");
    return real(entries, ring, flags);
}

static int opened(const char *name, const char *path, int flags, va_list ap)
{
    int (*real)(const char *, int, ...);

    *(void **)&real = dlsym(RTLD_NEXT, name);
    if (flags & O_DIRECT && getenv("FAULT_DIRECT")) {
        errno = EINVAL;
        return -1;
    }
    return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? real(path, flags, va_arg(ap, int))
                                                               : real(path, flags);
}
int open(const char *path, int flags, ...)
{
    va_list ap;
    int fd;

    va_start(ap, flags);
    fd = opened("open", path, flags, ap);
    va_end(ap);
    return fd;
}
int open64(const char *path, int flags, ...)
{
    va_list ap;
    int fd;

    va_start(ap, flags);
    fd = opened("open64", path, flags, ap);
    va_end(ap);
    return fd;
}
