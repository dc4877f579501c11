/* Reading for a rate: both forms read what they say, errors name the byte. No speed is asserted. */
#define _GNU_SOURCE
#include "coordinator/measure/disk.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/test.h"

#define FILE_BYTES (3u << 20)

static int make_file(int flags)
{
    char path[4096];
    const char *dir = getenv("TMPDIR");
    int fd, direct;

    mkdir("build", 0777);
    mkdir("build/tmp", 0777);
    snprintf(path, sizeof path, "%s/disk-test-%ld", dir ? dir : "build/tmp", (long)getpid());
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || posix_fallocate(fd, 0, FILE_BYTES)) {
        CHECK(0, "%s: cannot be written", path);
        exit(test_end());
    }
    direct = open(path, O_RDONLY | flags);
    close(fd);
    if (direct < 0) /* no O_DIRECT there */
        direct = open(path, O_RDONLY);
    unlink(path);
    return direct;
}

int main(void)
{
    static const struct {
        uint64_t bytes;
        unsigned depth;
    } c[] = {{4096, 1}, {4096, DISK_DEPTH_MAX}, {1 << 20, 2}, {FILE_BYTES, 3}, {5 * 4096, 7}};
    int fd = make_file(O_DIRECT);
    struct disk_rate r;
    struct err e = {0};

    for (unsigned i = 0; i < sizeof c / sizeof *c; i++) {
        CHECK(disk_rate(fd, "file", FILE_BYTES, c[i].bytes, c[i].depth, 20, &r, &e) == 0, "%s", e.msg);
        CHECK(r.bytes >= c[i].bytes && r.bytes % c[i].bytes == 0, "%llu bytes", (unsigned long long)r.bytes);
        CHECK(r.bytes_per_s > 0 && r.read_us > 0, "%f %f", r.bytes_per_s, r.read_us);
    }
    CHECK_EQ(disk_rate(fd, "file", FILE_BYTES, 5000, 1, 1, &r, &e), -EINVAL);
    CHECK_EQ(disk_rate(fd, "file", FILE_BYTES, 4096, 0, 1, &r, &e), -EINVAL);
    CHECK_EQ(disk_rate(fd, "file", FILE_BYTES, 4096, DISK_DEPTH_MAX + 1, 1, &r, &e), -EINVAL);
    CHECK_EQ(disk_rate(fd, "file", 4095, 4096, 1, 1, &r, &e), -EINVAL);
    e = (struct err){0};
    /* says it is twice as long: a block behind the end comes short */
    CHECK_EQ(disk_rate(fd, "file", 2 * FILE_BYTES, 1 << 20, 4, 1000, &r, &e), -EIO);
    CHECK(strstr(e.msg, "file: byte ") && strstr(e.msg, "cannot read"), "%s", e.msg);
    close(fd);
    CHECK_EQ(disk_rate(fd, "file", FILE_BYTES, 4096, 1, 1, &r, &e), -EBADF);
    return test_end();
}
