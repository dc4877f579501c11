/* What a file's device gives by size and number of reads: disk_bench [FILE]. Random direct reads; rows are
 * sizes, columns depths, GB/s, the better of two turns of 300 ms: to compare with READ_BYTES (pager/jobs.h) and
 * DEPTH (pager/uring.c). Without FILE it makes one of 256 MB in build/tmp. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "coordinator/measure/disk.h"

#define MS 300
#define MADE "build/tmp/disk_bench.file"

static void make_file(void)
{
    static char part[1 << 20];
    int fd;

    mkdir("build", 0777);
    mkdir("build/tmp", 0777);
    fd = open(MADE, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    for (int i = 0; i < 256; i++) {
        memset(part, i + 1, sizeof part);
        if (fd < 0 || write(fd, part, sizeof part) != sizeof part) {
            perror(MADE);
            exit(1);
        }
    }
    fsync(fd);
    close(fd);
}

int main(int argc, char **argv)
{
    static const unsigned depth[] = {1, 2, 4, 8, 16, 32, 64}, kib[] = {64, 128, 256, 512, 1024, 2048, 4096};
    enum { N_DEPTH = sizeof depth / sizeof *depth, N_SIZE = sizeof kib / sizeof *kib };
    const char *path = argc > 1 ? argv[1] : MADE;
    double best[N_SIZE][N_DEPTH] = {0};
    struct stat st;
    int fd;

    if (argc < 2)
        make_file();
    fd = open(path, O_RDONLY | O_DIRECT);
    if (fd < 0 || fstat(fd, &st)) {
        perror(path);
        return 1;
    }
    for (int turn = 0; turn < 2; turn++)
        for (int s = 0; s < N_SIZE; s++)
            for (int d = 0; d < N_DEPTH; d++) {
                struct disk_rate r;
                struct err e = {0};
                if (disk_rate(fd, path, (uint64_t)st.st_size, (uint64_t)kib[s] << 10, depth[d], MS, &r, &e)) {
                    fprintf(stderr, "disk_bench: %s\n", e.msg);
                    return 1;
                }
                if (best[s][d] < r.bytes_per_s)
                    best[s][d] = r.bytes_per_s;
            }
    printf("KiB   ");
    for (int d = 0; d < N_DEPTH; d++)
        printf("%7u", depth[d]);
    for (int s = 0; s < N_SIZE; s++) {
        printf("\n%-6u", kib[s]);
        for (int d = 0; d < N_DEPTH; d++)
            printf("%7.2f", best[s][d] * 1e-9);
    }
    printf("\n");
    close(fd);
    if (argc < 2)
        unlink(MADE);
    return 0;
}
