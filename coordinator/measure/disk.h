/* How fast a file's device gives random direct reads of a size, so many out at a time. What the plan
 * reckons with, and what the pager's depth is compared with. Reads into memory of its own; changes
 * nothing. */
#pragma once
#include <stdint.h>

#include "shm/err.h"

#define DISK_DEPTH_MAX 64u

struct disk_rate {
    double bytes_per_s;
    double read_us; /* from a read's start to its end, mean */
    uint64_t bytes; /* that were read for it */
    int uring;      /* by one io_uring; 0: by as many threads as reads are out, with pread */
};

/* CONCLAVE_IO, as for the pager: how files are read. -EINVAL: it is neither of the two. */
enum disk_io { DISK_ANY, DISK_URING, DISK_THREADS };
int disk_io(enum disk_io *out, struct err *e);

/* fd: the file, opened with O_DIRECT; else the page cache is measured, too. file_bytes: its size, at
 * least read_bytes. read_bytes: multiple of 4096. depth: 1 .. DISK_DEPTH_MAX. Reads blocks in an order
 * without pattern, each at most once before the first comes again, for ms milliseconds (and the reads
 * that are out then). Needs depth * read_bytes of memory. -EIO and the like with a line that names the
 * byte; `name` is the file's, for that line. */
int disk_rate(int fd, const char *name, uint64_t file_bytes, uint64_t read_bytes, unsigned depth,
              unsigned ms, struct disk_rate *out, struct err *e);
