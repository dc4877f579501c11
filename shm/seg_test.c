/* Segments: made, mapped by another process, refused; what is left of memory, from made-up /proc
 * trees. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/layout.h"
#include "shm/seg.h"
#include "tests/test.h"

#define MB (1ull << 20)

static int names_in_dev_shm(void) /* of ours */
{
    DIR *d = opendir("/dev/shm");
    int n = 0;

    for (struct dirent *f; d && (f = readdir(d));)
        n += !strncmp(f->d_name, "conclave-", 9);
    if (d)
        closedir(d);
    return n;
}

static void makes_and_maps(enum seg_role role, uint64_t bytes)
{
    struct err e = {0};
    struct seg s, t;
    int status, rc = seg_create(role, 3, bytes, 0, &s, &e);
    pid_t child;

    CHECK(!rc, "%s: %s", seg_role_name(role), e.msg);
    if (rc)
        return;
    CHECK((uintptr_t)s.base % SEG_HEAD_BYTES == 0, "base %p", s.base);
    ((uint8_t *)s.base)[0] = 11;
    ((uint8_t *)s.base)[bytes - 1] = 22;
    child = fork();
    if (!child) { /* another process, another address */
        uint8_t *b;
        rc = seg_map(dup(s.fd), role, 3, 1, &t, &e);
        b = t.base;
        if (rc || t.base == s.base || t.bytes != bytes || b[0] != 11 || b[bytes - 1] != 22)
            _exit(1);
        b[bytes / 2] = 33;
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0, "status %d", status);
    CHECK_EQ(((uint8_t *)s.base)[bytes / 2], 33);
    seg_close(&s);
    CHECK(s.fd == -1 && !s.map && !s.base, "still open");
    seg_close(&s); /* harmless */
}

static void reader_cannot_write(void)
{
    struct err e = {0};
    struct seg s, t;
    int fd;

    CHECK(!seg_create(SEG_BOARD, 0, 100, -1, &s, &e), "%s", e.msg);
    fd = seg_reader_fd(&s, &e);
    CHECK(fd >= 0, "%s", e.msg);
    CHECK(!seg_map(dup(fd), SEG_BOARD, 0, 0, &t, &e), "%s", e.msg);
    seg_close(&t);
    CHECK(seg_map(fd, SEG_BOARD, 0, 1, &t, &e) == -EACCES, "mapped for writing");
    CHECK(e.code == -EACCES && strstr(e.msg, "board.0"), "%s", e.msg);
    CHECK(fcntl(fd, F_GETFD) < 0, "seg_map keeps the descriptor after a failure");
    seg_close(&s);
}

static void refuses_heads(void)
{
    struct err e = {0};
    struct seg s, t;
    struct seg_head *h;
    struct seg_head good;
    int fd;

    CHECK(!seg_create(SEG_CALLS, 0, 5000, -1, &s, &e), "%s", e.msg);
    h = s.map;
    good = *h;
    CHECK_EQ(good.layout, shm_layout_hash());
    CHECK(!memcmp(good.build, build_id(), 16), "build id");
    e.code = 0;
    CHECK(seg_map(dup(s.fd), SEG_ACTS, 0, 0, &t, &e) == -EPROTO && strstr(e.msg, "calls.0"), "%s",
          e.msg);
    e.code = 0;
    CHECK(seg_map(dup(s.fd), SEG_CALLS, 1, 0, &t, &e) == -EPROTO, "other index");
    h->magic++;
    CHECK(seg_map(dup(s.fd), SEG_CALLS, 0, 0, &t, NULL) == -EPROTO, "magic");
    *h = good;
    h->layout++;
    CHECK(seg_map(dup(s.fd), SEG_CALLS, 0, 0, &t, NULL) == -EPROTO, "layout");
    *h = good;
    h->build[3] ^= 1;
    e.code = 0;
    CHECK(seg_map(dup(s.fd), SEG_CALLS, 0, 0, &t, &e) == -EPROTO && strstr(e.msg, "build"), "%s",
          e.msg);
    *h = good;
    h->bytes = 1ull << 60;
    CHECK(seg_map(dup(s.fd), SEG_CALLS, 0, 0, &t, NULL) == -EPROTO, "bytes");
    *h = good;
    CHECK(!seg_map(dup(s.fd), SEG_CALLS, 0, 0, &t, NULL), "good again");
    CHECK_EQ(t.bytes, 5000);
    seg_close(&t);
    seg_close(&s);
    fd = memfd_create("x", 0);
    CHECK(seg_map(fd, SEG_CALLS, 0, 0, &t, NULL) == -EPROTO, "empty file");
    CHECK(seg_map(12345, SEG_CALLS, 0, 0, &t, NULL) == -EBADF, "no descriptor");
}

static void refuses_sizes(void)
{
    struct err e = {0};
    struct seg s;

    CHECK(seg_create(SEG_SLABS, 0, 1ull << 50, -1, &s, &e) == -ENOMEM, "a petabyte");
    CHECK(strstr(e.msg, "slabs.0") && strstr(e.msg, "MB"), "%s", e.msg);
    CHECK(s.fd == -1, "open");
    CHECK(seg_create(SEG_SLABS, 0, UINT64_MAX - 5, -1, &s, NULL) == -EOVERFLOW, "2^64");
    CHECK(seg_create(SEG_TABLES, 0, memory_left() + 200 * MB, -1, &s, NULL) == -ENOMEM,
          "all and more");
}

/* pages: below one step of one thread, and several steps with an odd end. */
static void populates(size_t pages)
{
    struct err e = {0};
    struct seg s;
    unsigned char *in = calloc(pages, 1);
    size_t there = 0;

    CHECK(!seg_create(SEG_SLABS, 1, pages * 4096 - 100, 0, &s, &e), "%s", e.msg);
    ((uint8_t *)s.base)[5] = 77;
    CHECK(!seg_populate(&s, &e), "%s", e.msg);
    CHECK(in && !mincore(s.base, pages * 4096, in), "mincore");
    for (size_t i = 0; in && i < pages; i++)
        there += in[i] & 1;
    free(in);
    CHECK_EQ(there, pages);
    CHECK_EQ(((uint8_t *)s.base)[5], 77);
    CHECK(ftruncate(s.fd, 4096) < 0, "its size can be changed under others");
    seg_close(&s);
}

int main(void)
{
    makes_and_maps(SEG_BOARD, sizeof(struct board));
    makes_and_maps(SEG_CALLS, 4096);
    makes_and_maps(SEG_TABLES, 123457);
    makes_and_maps(SEG_ACTS, 4097);
    makes_and_maps(SEG_OUTBOX, 3 * MB);
    makes_and_maps(SEG_SLABS, 5 * MB + 1);
    CHECK_EQ(names_in_dev_shm(), 0);
    reader_cannot_write();
    refuses_heads();
    refuses_sizes();
    populates(64);
    populates((160 << 20) / 4096 + 3);
    CHECK(memory_left() > 0 && memory_left() < 1ull << 50, "%llu",
          (unsigned long long)memory_left());
    return test_end();
}
